"""What mkdocs adds to the pages in this folder (``make docs``): README as the first page, a page for
each rule, the gallery of examples, the reference of commands and of Python, and the project's own
documents; and llms.txt, which lists the pages for agents.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

PROJECT = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/conduct.md",
}
LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]*)(#[^)\s]*)?(?=\))")
"""What a Markdown link leads to: a path and an anchor."""
NAMED = re.compile(r"^(#+ )<a id=\"([\w-]+)\"></a>(?=\2$)", re.MULTILINE)
"""A heading with an anchor of its own name, which mkdocs gives it, too: no two may be the same."""
WIDE = 80
"""Characters of a signature above which its parameters stand below each other."""
ROLE = re.compile(r":\w+:`~?([^`]+)`")
CODE = re.compile(r"\b[A-Z]+\d{3}\b(?![-/])")
FIRST, RULES = "README.md", "rules/README.md"
PAGE_OF_RULE = re.compile(r"rules/\w+/manual/(\w+)\.md")
GALLERY = Path(os.environ.get("AUDIT_GALLERY", ROOT / "build" / "gallery"))
"""What docs/make_gallery.py wrote; tests have a gallery of their own."""
EMPTY = "No example was audited for this copy of the site: `make docs` does it."


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that no file in docs/ holds."""
    from mkdocs.structure.files import File

    for path, text in made_pages():
        files.append(File.generated(config, path, content=text))
    for path, text in loaded("open_page").pages():
        files.append(File.generated(config, path, content=text))
    for place, source in gallery_files(GALLERY):
        files.append(File.generated(config, place, abs_src_path=str(source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that lead out of docs/ in a checkout lead to the pages made of those files."""
    path = page.file.src_uri
    markdown = NAMED.sub(r"\1", markdown)
    if page.file.generated_by is not None:
        return markdown  # done when it was made
    if path == "finds.md":
        markdown = CODE.sub(lambda found: f"[{found[0]}](rules/{found[0].lower()}.md)", markdown)
    return linked(markdown, f"docs/{path}", path)


_PAGES: dict[str, tuple[str, str]] = {}
"""Title and first sentence of each page of this build, by its address."""


def on_page_content(html: str, page: Any, **_: Any) -> None:
    """Keep what llms.txt says of the page."""
    _PAGES[page.url] = (str(page.title), first_sentence(page.markdown or ""))


def on_post_build(config: Any) -> None:
    """Write llms.txt, the table of contents for agents: pages with their first sentences."""
    Path(config["site_dir"], "llms.txt").write_text(
        contents(config["site_name"], config["site_description"], _PAGES), "utf-8"
    )
    _PAGES.clear()


def contents(name: str, description: str, pages: dict[str, tuple[str, str]]) -> str:
    """The text of llms.txt: a line for each page, those of rules, decisions and logs after the others."""
    groups: dict[str, list[str]] = {"Pages": [], "Rules": [], "Decisions": [], "Logs": []}
    for url in sorted(pages):
        title, sentence = pages[url]
        folder = url.partition("/")[0]
        part = {"rules": "Rules", "decisions": "Decisions", "log": "Logs"}.get(folder, "Pages")
        groups[part].append(f"- [{title}]({url}){f': {sentence}' if sentence else ''}")
    parts = [f"# {name}\n\n> {description}"]
    parts += [f"## {part}\n\n" + "\n".join(lines) for part, lines in groups.items() if lines]
    return "\n\n".join(parts) + "\n"


def first_sentence(markdown: str) -> str:
    """The first sentence of a page's first paragraph, without links and marks; empty where it has
    only lists, tables and blocks.
    """
    plain = re.sub(r"^```.*?^```$", "", markdown, flags=re.DOTALL | re.MULTILINE)
    plain = re.sub(r"<!--.*?-->|^#.*?$", "", plain, flags=re.DOTALL | re.MULTILINE)
    for block in re.split(r"\n\s*\n", plain):
        words = " ".join(block.split())
        if not words or not (words[0].isalnum() or words[0] in '`"[') or words.startswith("!["):
            continue
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", words).replace("**", "")
        return re.split(r"(?<=[.!?:]) (?=[A-Z`\[])", words)[0]
    return ""


def made_pages() -> Iterator[tuple[str, str]]:
    """Path and text of each of them."""
    yield "index.md", _of(FIRST, "index.md")
    for name, path in PROJECT.items():
        yield path, _of(name, path)
    yield from _rules()
    yield from gallery(GALLERY)
    yield "reference/commands.md", _commands()
    yield "reference/python.md", _python()


def _of(name: str, path: str) -> str:
    return linked((ROOT / name).read_text("utf-8"), name, path)


def linked(markdown: str, source: str, path: str) -> str:
    """``markdown`` of the file ``source`` of the checkout, its links as the page at ``path`` needs
    them. A link to a file that is no page becomes its words.
    """

    def replaced(found: re.Match[str]) -> str:
        target, anchor = found[1], found[2] or ""
        if not target:
            return found[0]
        at = normpath(PurePosixPath(source).parent.joinpath(target).as_posix())
        if at == RULES:
            led = "rules/index.md"
        elif page := PAGE_OF_RULE.fullmatch(at):
            led = f"rules/{page[1].lower()}.md"
        elif at in PROJECT or at == FIRST:
            led = PROJECT.get(at, "index.md")
        elif at.startswith("docs/"):
            led = at.removeprefix("docs/")
        else:
            return f"{target}{anchor}"  # mkdocs is strict: it fails here
        return relpath(led, str(PurePosixPath(path).parent)) + anchor

    return LINK.sub(replaced, markdown)


def _rules() -> Iterator[tuple[str, str]]:
    from auditor.judging.catalogue import own_rules, page

    rules = own_rules()
    rows = "\n".join(
        f"| [{rule.code}]({rule.code.lower()}.md) | {rule.title()} | {rule.severity.value} |"
        for rule in rules
    )
    head = "# All rules\n\n`audit explain CODE` prints a rule's page in the terminal.\n"
    yield "rules/index.md", f"{head}\n| code | defect | severity |\n|---|---|---|\n{rows}\n"
    for rule in rules:
        yield f"rules/{rule.code.lower()}.md", page(rule)


def gallery(folder: Path) -> Iterator[tuple[str, str]]:
    """A page for each example that was audited into ``folder``, and one that lists them."""
    made = loaded("make_gallery")
    rows = []
    for example in made.examples():
        place = folder / example.name
        if (place / made.REPORT).is_file() and (place / made.PAGE).is_file():
            text, said = _example(example, place, made)
            yield f"gallery/{example.name}.md", text
            rows.append(f"| [{example.name}]({example.name}.md) | {said} |")
    head = (
        "# Gallery\n\nThe trainers of `examples/`, audited on the machine that made this site. Each "
        "has its report, as `audit run` left it.\n\n"
    )
    table = "\n".join(["| example | an audit says |", "|---|---|", *rows]) if rows else EMPTY
    yield "gallery/index.md", f"{head}{table}\n"


def gallery_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Reports and pictures: where they lie in the site, and where now."""
    made = loaded("make_gallery")
    for example in made.examples():
        for file in (made.PAGE, made.PICTURE):
            source = folder / example.name / file
            if source.is_file() and (folder / example.name / made.REPORT).is_file():
                yield f"gallery/{example.name}/{file}", source


def _example(example: Any, place: Path, made: Any) -> tuple[str, str]:
    """The page of an example, and its headline."""
    from auditor.judging import catalogue

    as_json, markdown, summary, headline = (
        catalogue.reports(name) for name in ("as_json", "markdown", "summary", "headline")
    )
    report = as_json.read(place / made.REPORT)
    readme = (ROOT / "examples" / example.name / "README.md").read_text("utf-8")
    title, story = readme.lstrip("# ").split("\n\n")[:2]
    said = [markdown.escape(words) for words in headline.headline(report)]
    parts = [
        f"# {title.strip()}",
        story,
        f"```console\n$ cd {example.place.relative_to(ROOT)}\n$ {example.command}\n```",
        " ".join(f"**{words}**" for words in said),
        f"[The report]({example.name}/{made.PAGE}){{ .md-button }}",
    ]
    if (place / made.PICTURE).is_file():
        shown = f"![The first screen of the report]({example.name}/{made.PICTURE})"
        parts.append(f"[{shown}]({example.name}/{made.PAGE})")
    if report.findings:
        rows = [_row(finding, markdown, summary) for finding in report.findings]
        parts.append("## Findings\n\n" + "\n".join(rows))
    parts.append("[All examples](index.md)")
    return "\n\n".join(parts) + "\n", said[0] if said else ""


def _row(finding: Any, markdown: Any, summary: Any) -> str:
    code = finding.code
    where = f", <code>{markdown.escape(str(finding.site), 300)}</code>" if finding.site else ""
    price = summary.price(finding)
    told = f"{summary.severity(finding).value}{f', {price}' if price else ''}"
    rule = f"[{code}](../rules/{code.lower()}.md)"
    return f"- **{rule}**{where} ({told}): {markdown.prose(finding.message)}"


def loaded(name: str) -> Any:
    """A module of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _commands() -> str:
    """``--help`` of each command, as it prints it."""
    import click

    from auditor.cli.main import main

    with click.Context(main, info_name="audit") as top:
        parts = ["# Commands", _help(main, top)]
        for name in main.list_commands(top):
            command = main.get_command(top, name)
            assert command is not None
            with click.Context(command, info_name=name, parent=top) as context:
                parts += [f"## audit {name}", _help(command, context)]
    return "\n\n".join(parts) + "\n"


def _help(command: Any, context: Any) -> str:
    return f"```text\n{command.get_help(context)}\n```"


def _python() -> str:
    """Signatures and docstrings of what docs/rule-packs.md promises."""
    from auditor import api, model, rule, testing
    from auditor.extensions.longrun.run import LongRun

    parts = ["# Python"]
    for name, thing in (
        ("auditor.audit", api.audit),
        ("auditor.watch", api.watch),
        ("auditor.extensions.longrun.run.LongRun", LongRun),
        ("auditor.Report", api.Report),
        ("auditor.testing.assert_no_findings", testing.assert_no_findings),
        ("auditor.testing.FindingsFound", testing.FindingsFound),
        ("auditor.model.Finding", model.Finding),
        ("auditor.model.Site", model.Site),
        ("auditor.model.Remedy", model.Remedy),
        ("auditor.model.Edit", model.Edit),
        ("auditor.rule.Rule", rule.Rule),
        ("auditor.rule.knob", rule.knob),
        ("auditor.rule.NotLooked", rule.NotLooked),
    ):
        parts += [f"## {name}", _signature(name, thing), _words(thing)]
        if inspect.isclass(thing):
            parts += _methods(name, thing)
    return "\n\n".join(part for part in parts if part) + "\n"


def _methods(name: str, kind: type) -> Iterator[str]:
    for method, thing in vars(kind).items():
        shown = thing.fget if isinstance(thing, property) else thing
        if method.startswith("_") or not inspect.isfunction(shown) or not shown.__doc__:
            continue
        yield f"### {name.rpartition('.')[2]}.{method}"
        yield "" if isinstance(thing, property) else _signature(method, shown)
        yield _words(shown)


def _signature(name: str, thing: Any) -> str:
    try:
        signature = inspect.signature(thing)
    except ValueError:
        return ""
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    words, keyword_only = [], False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not keyword_only:
            words.append("*")
            keyword_only = True
        words.append(_parameter(each))
    inside = ", ".join(words)
    if len(name) + len(inside) > WIDE:
        inside = "\n" + "".join(f"    {word},\n" for word in words)
    returned = signature.return_annotation
    told = "" if returned is signature.empty or inspect.isclass(thing) else f" -> {_type(returned)}"
    return f"```python\n{name}({inside}){told}\n```"


def _parameter(each: inspect.Parameter) -> str:
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    typed = "" if each.annotation is each.empty else f": {_type(each.annotation)}"
    given = "" if each.default is each.empty else f" = {_default(each.default)}"
    return f"{stars}{each.name}{typed}{given}"


def _type(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")


def _default(value: Any) -> str:
    shown = repr(value)
    return "..." if shown.startswith("<") else shown


def _words(thing: Any) -> str:
    return ROLE.sub(r"`\1`", inspect.getdoc(thing) or "").replace("``", "`")
