"""The pages that people read: files and links exist, no line of prose is long."""

import re
from pathlib import Path

import yaml

from tests.gathered import for_each

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("auditor", "rules", "reports", "tests", "docs", "fuzz", "benchmarks", "examples")
LONGEST = 100

ROOMS_OF_PAGES = [ROOT / room for room in ("docs", "examples", "fuzz", "rules", "tests")]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(page for room in ROOMS_OF_PAGES for page in room.rglob("*.md"))]
)
GENERATED = {"docs/report-json.md", "docs/recording.md"}
"""Written by a program: its rows are as long as they are."""

MAPS = [page for page in PAGES if page.parent == ROOT or ROOT / "docs" in page.parents]
"""Pages that speak of the repository itself: the examples' speak of their own folders."""

OTHERS_PROGRAMS = {"docs/log/public-programs.md"}
PLACEHOLDERS = {"path/to/script.py", "sync042_what_is_wrong.py", "CODE.md"}
PLACEHOLDERS |= {"AGENTS.md", "SKILL.md"}  # files of users

FILES = [path for room in ROOMS for path in (ROOT / room).rglob("*.*")]
NAMES = {path.name for path in FILES if "__pycache__" not in path.parts}


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def prose(page):
    """The page without its blocks of code; each of their lines is left empty."""
    block = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)
    return block.sub(lambda found: "\n" * found[0].count("\n"), page.read_text("utf-8"))


def spans(page):
    """What stands in backticks."""
    return re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose(page))


def exists(path, page):
    """A path names something: from the root, in ``auditor/`` or a package, beside the page."""
    if any((start / path).exists() for start in (ROOT, ROOT / "auditor", page.parent)):
        return True
    return "/" in path and any(ROOT.joinpath("auditor").rglob(path))


@for_each(PAGES, name_of)
def test_fences_of_code_stand_on_lines_of_their_own(page):
    """Prose that was wrapped anew once swallowed a block."""
    marked = [line for line in page.read_text("utf-8").splitlines() if "```" in line]
    assert not [line for line in marked if not re.fullmatch(r" *```[\w-]*( \w+=.*)?", line)]
    assert len(marked) % 2 == 0


@for_each(MAPS, name_of)
def test_files_that_a_page_names_exist(page):
    text = re.sub(r"https?://[^\s)]+", "", prose(page))
    named = set(re.findall(rf"(?<![\w/.-])(?:{'|'.join(ROOMS)})/[\w./-]*\w", text))
    if name_of(page) not in OTHERS_PROGRAMS:
        path = re.compile(r"[\w.-]+(/[\w.-]+)+\.(py|js|md|toml)")
        named |= {span for span in spans(page) if path.fullmatch(span)}
    assert not sorted(path for path in named - PLACEHOLDERS if not exists(path, page))


@for_each([page for page in MAPS if name_of(page) not in OTHERS_PROGRAMS], name_of)
def test_a_file_named_without_its_folder_exists_somewhere(page):
    bare = {span for span in spans(page) if re.fullmatch(r"\w+\.(py|js)", span)}
    bare |= set(re.findall(r"\b[A-Z][A-Z_]+\.md\b", prose(page)))
    assert not sorted(bare - PLACEHOLDERS - NAMES - {path.name for path in ROOT.glob("*.md")})


def test_pages_that_the_code_names_exist():
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        named = re.findall(r"\b(?:docs/[\w./-]+\.md|[A-Z_]{4,}\.md)\b", path.read_text("utf-8"))
        known = NAMES | PLACEHOLDERS
        assert not [page for page in named if not exists(page, path) and page not in known], path


LEFT = {"auditor.nulldevice", "auditor.nulldevice.environment"}
"""Modules that a page says are gone."""


@for_each(MAPS, name_of)
def test_modules_that_a_page_names_exist(page):
    for dotted in set(re.findall(r"\bauditor(?:\.\w+)+", page.read_text("utf-8"))) - LEFT:
        here, rest = ROOT / "auditor", dotted.split(".")[1:]
        if rest[0] in ("rules", "reports"):
            here = ROOT
        while rest and (here / rest[0]).is_dir():
            here /= rest.pop(0)
        own = rest and (here / f"{rest[0]}.py").exists()
        module = here / f"{rest.pop(0) if own else '__init__'}.py"
        assert not rest or re.search(rf"\b{rest[0]}\b", module.read_text("utf-8")), dotted


def anchors(page):
    """The fragments that a link into a page may have: headings as GitHub names them."""
    text = page.read_text("utf-8")
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    heads = [re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads]
    return {*heads, *re.findall(r'<a id="([^"]+)"', text)}


@for_each(PAGES, name_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith(("http://", "https://")):
            continue
        path, _, fragment = target.partition("#")
        to = page.parent / path if path else page
        assert to.exists(), target
        if fragment:
            assert fragment in anchors(to), target


@for_each([page for page in PAGES if name_of(page) not in GENERATED], name_of)
def test_no_line_of_prose_is_long(page):
    """Tables, blocks of code, and where links lead aside."""
    text = re.sub(r"\]\([^)\n]*\)|https?://[^\s)]+", "", prose(page))
    lines = [line for line in text.splitlines() if not line.startswith("|")]
    assert not [line for line in lines if len(line) > LONGEST]


def test_every_decision_stands_in_the_index():
    folder = ROOT / "docs" / "decisions"
    row = re.compile(r"^\| \[(\d{4})\]\((\1-[\w-]+\.md)\) \| .+ \|$", re.MULTILINE)
    listed = row.findall((folder / "README.md").read_text("utf-8"))
    assert [name for _, name in listed] == sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [int(number) for number, _ in listed] == list(range(1, len(listed) + 1))


# -- words -----------------------------------------------------------------------------------------

LONGEST_MANUAL = 60
"""Lines of a manual page."""
STYLES = {
    style.name: [yaml.safe_load(rule.read_text("utf-8")) for rule in sorted(style.glob("*.yml"))]
    for style in (ROOT / ".vale" / "styles").iterdir()
}
FOLDERS = {ROOT / "docs", *ROOT.glob("rules/*/manual"), *ROOT.glob("examples/*")}
FOLDERS |= {ROOT, ROOT / "rules"}
UNWORDED = {*GENERATED, "CHANGELOG.md", "CODE_OF_CONDUCT.md"}
WORDED = [page for page in PAGES if page.parent in FOLDERS and name_of(page) not in UNWORDED]


def parts(page):
    """Paragraphs, items of lists, headings and rows of tables, without code."""
    text = re.sub(r"<!-- vale off -->.*?<!-- vale on -->", "", prose(page), flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "x", re.sub(r"\]\([^)]*\)", "]", text))
    text = re.sub(r"^(#.*)$", r"\1\n", text, flags=re.MULTILINE)
    for part in re.split(r"\n\s*\n|\n(?=\s*(?:- |\d+\. |\||#))", text):
        yield " ".join(part.split())


def against(rule, part):
    """What a rule of Vale's says against a part of a page."""
    if rule["extends"] == "occurrence":
        pieces = re.split(r"(?<=[.;:?!]) ", part) if rule["scope"] == "sentence" else [part]
        long = [piece for piece in pieces if len(re.findall(rule["token"], piece)) > rule["max"]]
        return long if not part.startswith("|") else []
    edges = "{}" if rule.get("nonword") else r"\b(?:{})\b"
    patterns = edges.format("|".join(rule.get("tokens") or rule["swap"]))
    return re.findall(patterns, part, re.IGNORECASE if rule.get("ignorecase") else 0)


def test_rules_of_the_style_sheet_find_what_they_name():
    part = f"Silent is one that nobody made anew. {'Long ' * 91}"
    styles = (STYLES["Audit"], STYLES["Pages"], STYLES["Manual"])
    assert all(against(rule, part) for style in styles for rule in style)


@for_each(WORDED, name_of)
def test_words_are_those_of_the_style_sheet(page):
    """CONTRIBUTING.md, "Words"; the rules are Vale's files."""
    manual = page.parent.name == "manual"
    rules = STYLES["Audit"] + STYLES["Manual" if manual else "Pages"]
    for part in parts(page):
        assert not [hit for rule in rules for hit in against(rule, part)], part[:60]
    assert not manual or page.read_text("utf-8").count("\n") <= LONGEST_MANUAL
