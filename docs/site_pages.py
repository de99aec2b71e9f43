"""What mkdocs adds to the pages in this folder (``make docs``): README as the first page, a page for
each rule, the reference of commands and of Python, and the project's own documents.
"""

from __future__ import annotations

import inspect
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
WIDE = 80
"""Characters of a signature above which its parameters stand below each other."""
ROLE = re.compile(r":\w+:`~?([^`]+)`")
CODE = re.compile(r"\b[A-Z]+\d{3}\b(?![-/])")
FIRST, RULES = "README.md", "rules/README.md"


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that no file in docs/ holds."""
    from mkdocs.structure.files import File

    for path, text in made_pages():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that lead out of docs/ in a checkout lead to the pages made of those files."""
    path = page.file.src_uri
    if page.file.generated_by is not None:
        return markdown  # done when it was made
    if path == "finds.md":
        markdown = CODE.sub(lambda found: f"[{found[0]}](rules/{found[0].lower()}.md)", markdown)
    return linked(markdown, f"docs/{path}", path)


def made_pages() -> Iterator[tuple[str, str]]:
    """Path and text of each of them."""
    yield "index.md", _of(FIRST, "index.md")
    for name, path in PROJECT.items():
        yield path, _of(name, path)
    yield from _rules()
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
            led, anchor = f"rules/{anchor[1:] or 'index'}.md", ""
        elif at in PROJECT or at == FIRST:
            led = PROJECT.get(at, "index.md")
        elif at.startswith("docs/"):
            led = at.removeprefix("docs/")
        else:
            return f"{target}{anchor}"  # mkdocs is strict: it fails here
        return relpath(led, str(PurePosixPath(path).parent)) + anchor

    return LINK.sub(replaced, markdown)


def _rules() -> Iterator[tuple[str, str]]:
    from auditor.judging.catalogue import own_rules
    from auditor.judging.manual import page

    rules = own_rules()
    rows = "\n".join(
        f"| [{rule.code}]({rule.code.lower()}.md) | {rule.title()} | {rule.severity.value} |"
        for rule in rules
    )
    head = "# All rules\n\n`audit explain CODE` prints a rule's page in the terminal.\n"
    yield "rules/index.md", f"{head}\n| code | defect | severity |\n|---|---|---|\n{rows}\n"
    for rule in rules:
        yield f"rules/{rule.code.lower()}.md", page(rule)


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
    from auditor.longrun.run import LongRun

    parts = ["# Python"]
    for name, thing in (
        ("auditor.audit", api.audit),
        ("auditor.watch", api.watch),
        ("auditor.longrun.run.LongRun", LongRun),
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
