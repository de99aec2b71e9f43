"""What ``make docs`` builds holds together: links, anchors, the table of contents, the gallery (mkdocs
is not needed for these); and what axe-core says of the site in a browser.
"""

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath
from posixpath import normpath
from urllib.parse import urlsplit

import pytest
from auditor.reports import renderer

from tests.reports import golden_report as golden
from tests.reports.browsing import NEEDS_CHROMIUM, axe_violations, chromium

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted(ROOT.glob("docs/**/*.md"))
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)\s#]*)(?:#([^)\s]*))?(?=\))")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site():
    return loaded("site_pages")


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """A gallery of one example, without its picture."""
    folder = tmp_path_factory.mktemp("gallery")
    place = folder / "energy_flow"
    place.mkdir()
    for form, file in (("html", "report.html"), ("json", "report.json")):
        content = renderer(form).render(golden.rich_report())
        (place / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "mmgcn").mkdir()
    (folder / "mmgcn" / "report.html").write_text("an audit that was cut off")
    return folder


def anchors(text):
    """As GitHub and mkdocs name headings."""
    named = set(re.findall(r'<a id="([^"]+)">', text))
    for heading in HEADING.findall(FENCED.sub("", text)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        named.add(re.sub(r"[^\w\s-]", "", plain).strip().lower().replace(" ", "-"))
    return named


def links(text):
    return LINK.findall(FENCED.sub("", text))


def test_links_of_the_made_pages_lead_to_pages(site):
    made = dict(site.made_pages())
    pages = {f"{path.relative_to(ROOT / 'docs')}": path.read_text("utf-8") for path in DOCS} | made
    files = {place for place, _ in site.gallery_files(site.GALLERY)}
    assert {"index.md", "rules/sync001.md", "reference/python.md"} <= set(made)
    for path, text in made.items():
        for target, anchor in links(text):
            at = normpath(str(PurePosixPath(path).parent / target)) if target else path
            assert at in pages or at in files or (ROOT / "docs" / at).is_file(), f"{path}: {target}"
            if anchor and at in pages:
                assert anchor in anchors(pages[at]), f"{path}: {target}#{anchor}"


def test_every_document_stands_in_the_table_of_contents(site):
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("nav:")[2]))
    there = {str(path.relative_to(ROOT / "docs")) for path in DOCS}
    assert {name for name in there if "/" not in name} <= listed
    assert listed <= there | {path for path, _ in site.made_pages()}


def test_llms_txt_names_every_page_of_the_site_and_leads_to_it(built):
    text = (built / "llms.txt").read_text("utf-8")
    assert text.startswith("# torch-step-audit\n\n> Audits a PyTorch training step.")
    named = re.findall(r"^- \[[^\n]+\]\(([^)]*)\)", text, re.MULTILINE)
    pages = {path.relative_to(built).as_posix() for path in built.rglob("*.html")}
    assert set(named) == {
        page
        for page in pages
        if not page.endswith(("404.html", "/report.html")) and not page.startswith("open/")
    }
    assert len(named) == len(set(named))
    assert "(agents.html): " in text and "(rules/sync001.html)" in text


# -- the gallery -----------------------------------------------------------------------------------


def test_each_audited_example_has_a_page_that_says_what_was_found(site, audited):
    pages = dict(site.gallery(audited))
    assert set(pages) == {"gallery/energy_flow.md", "gallery/index.md"}
    page, report = pages["gallery/energy_flow.md"], golden.rich_report()
    assert page.startswith("# Energy Flow\n\nA GRU reads")
    assert "$ cd examples/energy_flow/broken\n$ audit run trainer:step" in page
    assert "(energy_flow/report.html)" in page
    assert "picture.png" not in page, "there is none"
    for finding in report.findings:
        assert f"- **[{finding.code}](../rules/{finding.code.lower()}.md)**" in page
    assert "energy_flow.md" in pages["gallery/index.md"]
    assert "mmgcn" not in pages["gallery/index.md"]
    assert [place for place, _ in site.gallery_files(audited)] == [
        "gallery/energy_flow/report.html"
    ]


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(audited, tmp_path_factory):
    """The site as ``make docs`` builds it, with that gallery (four seconds)."""
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    out = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    env = {**os.environ, "AUDIT_GALLERY": str(audited), "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def driver(built):
    with chromium(performance="ALL") as made:
        yield made


SCHEME = """
const style = document.createElement("style");
style.textContent = "* { transition: none !important }";
document.head.append(style);
document.body.dataset.mdColorScheme = arguments[0];
"""
"""At once: a colour on its way to another one has too little contrast."""


@pytest.mark.full
@NEEDS_CHROMIUM
@pytest.mark.parametrize("scheme", ["default", "slate"])
@pytest.mark.parametrize(
    "page",
    "index.html guide.html gallery/energy_flow.html rules/sync001.html report-json.html".split(),
)
def test_axe_finds_no_violation_in_the_site(built, driver, page, scheme):
    driver.get((built / page).as_uri())
    driver.execute_script(SCHEME, scheme)
    assert axe_violations(driver) == []


@pytest.mark.full
@NEEDS_CHROMIUM
def test_the_site_is_read_without_a_network_and_leads_to_the_report(built, driver):
    driver.get("about:blank")
    driver.get_log("performance")
    driver.get((built / "gallery/energy_flow.html").as_uri())
    driver.execute_script("document.querySelector('a.md-button').click()")
    assert driver.current_url == (built / "gallery/energy_flow/report.html").as_uri()
    assert "Findings" in driver.execute_script("return document.body.innerText")
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    asked = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    assert any("/assets/" in url for url in asked)
    assert {urlsplit(url).scheme for url in asked} <= {"file", "data", "blob"}
