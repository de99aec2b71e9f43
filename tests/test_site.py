"""What ``make docs`` builds holds together: links, anchors and the table of contents. mkdocs is not
needed.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path, PurePosixPath
from posixpath import normpath

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
DOCS = sorted(ROOT.glob("docs/**/*.md"))
LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)\s#]*)(?:#([^)\s]*))?(?=\))")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("site_pages", ROOT / "docs/site_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    assert {"index.md", "rules/sync001.md", "reference/python.md"} <= set(made)
    for path, text in made.items():
        for target, anchor in links(text):
            at = normpath(str(PurePosixPath(path).parent / target)) if target else path
            assert at in pages or (ROOT / "docs" / at).is_file(), f"{path}: {target}"
            if anchor and at in pages:
                assert anchor in anchors(pages[at]), f"{path}: {target}#{anchor}"


def test_every_document_stands_in_the_table_of_contents(site):
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().partition("nav:")[2]))
    there = {str(path.relative_to(ROOT / "docs")) for path in DOCS}
    assert {name for name in there if "/" not in name} <= listed
    assert listed <= there | {path for path, _ in site.made_pages()}


def test_the_page_of_a_rule_says_what_audit_explain_says(site):
    page = dict(site.made_pages())["rules/sync001.md"]
    assert "A tensor becomes a Python number in the step" in page
    assert "[tool.audit.rules.SYNC001]" in page


@pytest.mark.parametrize(
    ("source", "path", "written", "becomes"),
    [
        ("README.md", "index.md", "[a](docs/prices.md#x)", "[a](prices.md#x)"),
        ("README.md", "index.md", "[a](rules/README.md)", "[a](rules/index.md)"),
        ("docs/outputs.md", "outputs.md", "[a](../rules/README.md#sync001)", "[a](rules/sync001.md)"),
        ("docs/decisions/README.md", "decisions/README.md", "[a](../../ARCHITECTURE.md)", "[a](../project/architecture.md)"),
        ("docs/outputs.md", "outputs.md", "[a](../README.md)", "[a](index.md)"),
        ("docs/outputs.md", "outputs.md", "[a](https://x.org/y.md)", "[a](https://x.org/y.md)"),
        ("docs/outputs.md", "outputs.md", "[a](#here)", "[a](#here)"),
        ("SECURITY.md", "project/security.md", "[a](docs/drill.md)", "[a](../drill.md)"),
    ],
)  # fmt: skip
def test_links_follow_their_file_into_the_site(site, source, path, written, becomes):
    assert site.linked(written, source, path) == becomes


def test_issue_forms_are_forms():
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        if path.stem == "config":
            continue
        assert {"name", "description", "body"} <= set(form)
        for field in form["body"]:
            assert field["type"] in {"input", "textarea", "markdown", "dropdown", "checkboxes"}
            assert field["attributes"]["label"]
