"""The user's source as it was recorded: excerpts, and what a line of it says."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeVar

from auditor.evidence.table import Evidence, Table
from auditor.model import Excerpt, Site
from auditor.recordings.folder import Recording
from auditor.recordings.schema.run import SiteRow
from auditor.recordings.writer import decode_source
from auditor.syntax.config_files import suffix_of
from auditor.syntax.index import (
    Function,
    Index,
    Span,
    index_of,
    lines_of,
    name_of,
    names_in,
    nodes_in,
    span_of,
    targets_of,
    unparsed,
)
from auditor.syntax.logging_calls import Kind, log_kind
from auditor.syntax.reaching import made_by

__all__ = [
    "Function",
    "Index",
    "Source",
    "Span",
    "lines_of",
    "name_of",
    "span_of",
    "the_only",
    "unparsed",
]

DTYPES = ("float", "int", "long", "half", "bfloat", "double", "bool", "uint")
"""How the names of torch's dtypes begin: ``torch.float32``."""

LOGS = frozenset(
    """
    print write set_postfix set_postfix_str set_description set_description_str add_scalar
    add_scalars info debug log log_metric log_metrics
    """.split()
)
"""Last names of calls that log: print, tqdm, logging, TensorBoard's writer, wandb and mlflow."""

N = TypeVar("N", bound=ast.AST)
T = TypeVar("T")


def span_at(where: SiteRow) -> Span | None:
    """Where the expression of a recorded place stands; None if Python does not say."""
    if where.col is None or where.end_col is None:
        return None
    first = where.first_line or where.line
    return Span(first, where.end_line or first, where.col, where.end_col)


@dataclass(frozen=True)
class Source(Table):
    """Text of each recorded user file, by the path that sites use."""

    texts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def build(cls, evidence: Evidence) -> Source:
        """From the recorded copies; a file whose copy is missing is left out."""
        stored = evidence.recording.manifest.get("sources") or {}
        raw = {
            name: evidence.recording.source_bytes(name) for name in stored if not suffix_of(name)
        }
        return cls(
            {name: decode_source(content) for name, content in raw.items() if content is not None}
        )

    def excerpt(self, file: str, span: Span) -> str:
        """The text of a span that lies on one line, else an empty string."""
        # splitlines() knows more separators than Python
        lines = self.texts.get(file, "").split("\n")
        if span.line != span.end_line or not 0 < span.line <= len(lines):
            return ""
        return lines[span.line - 1].encode()[span.col : span.end_col].decode(errors="replace")

    def node_at(self, file: str, span: Span) -> ast.expr | None:
        """The expression that spans exactly these bytes."""
        return self.index(file).expressions.get(span)

    def calls_at(self, site: Site) -> Iterator[ast.Call]:
        """Calls whose text covers the site's line, outermost first."""
        return self.index(site.file).on(site.line, ast.Call)

    def call_with_keyword(self, site: Site, keyword: str) -> str:
        """Last name of the call on the site's line that is given ``keyword``, or empty."""
        for call in self.calls_at(site):
            if any(given.arg == keyword for given in call.keywords):
                return name_of(call.func)
        return ""

    def called(self, site: Site, *names: str) -> str:
        """Which of ``names`` is called on the site's line; empty if none is."""
        return next(
            (name for call in self.calls_at(site) if (name := name_of(call.func)) in names), ""
        )

    def first_call(self, name: str) -> Site | None:
        """Where ``name`` is called first in the recorded files; None if nowhere."""
        file = next((file for file, _ in self.calls_of(name)), None)
        if file is None:
            return None
        return self.site_of(file, min(self.index(file).calls[name], key=lambda call: call.lineno))

    def only_call(self, name: str, *, given: str = "", lacking: str = "") -> Site | None:
        """The only line where ``name`` is called, with the one keyword and without the other."""
        found: dict[tuple[str, int], ast.Call] = {}
        for file, call in self.calls_of(name):
            found[file, call.lineno] = call
        if len(found) != 1:
            return None
        (((file, _), call),) = found.items()
        keywords = {item.arg for item in call.keywords}
        if (given and given not in keywords) or lacking in keywords:
            return None
        return self.site_of(file, call)

    def only_asked(self, keyword: str) -> tuple[Site, str] | None:
        """Where the keyword is given True or an expression and in the call of what, if on one line
        of all files; else None.
        """
        return the_only(
            (self.site_of(file, item.value), name_of(call.func))
            for file, call in self.every(ast.Call)
            for item in call.keywords
            if item.arg == keyword
            and (not isinstance(item.value, ast.Constant) or item.value.value is True)
        )

    def only_flag(self, path: str, *, value: bool) -> Site | None:
        """The only line that sets an attribute like ``cudnn.benchmark`` to the flag; else None."""
        found = [
            (file, node)
            for file in self.texts
            for node in self.nodes(file)
            if _sets_attribute(node, path)
        ]
        if len(found) != 1:
            return None
        ((file, node),) = found
        given = node.value if isinstance(node, ast.Assign) else None
        if not isinstance(given, ast.Constant) or given.value is not value:
            return None
        return self.site_of(file, node)  # type: ignore[arg-type]

    def site_of(self, file: str, node: ast.expr | ast.stmt) -> Site:
        """The line that a node begins on."""
        return Site(file, node.lineno, "", self.texts[file].split("\n")[node.lineno - 1].strip())

    def assigned_before(self, site: Site, wanted: Callable[[ast.stmt], bool]) -> Site | None:
        """The last wanted statement of the same function that gives a value to a name which the
        site's line reads; None if there is none.
        """
        index = self.index(site.file)
        scope = index.scope_at(site.line)
        if scope is None:
            return None
        read = names_in(index.on(site.line, ast.Call), ast.Load)
        found = [
            node
            for node in nodes_in(scope, ast.Assign, ast.AugAssign)
            if node.lineno < site.line and names_in(targets_of(node), ast.Store) & read
        ]
        last = max(filter(wanted, found), key=lambda node: node.lineno, default=None)
        return None if last is None else self.site_of(site.file, last)

    def makes_at(self, site: Site) -> str:
        """``zeros`` where the line's only move is ``torch.zeros(...).to(...)`` or ``.cuda()``, or of
        what keeps such a tensor's place and values; empty if it moves something else.
        """
        move = the_only(
            call.func for call in self.calls_at(site) if name_of(call.func) in ("to", "cuda")
        )
        made = made_by(move.value) if isinstance(move, ast.Attribute) else None
        return "" if made is None else name_of(made.func)

    def stands_alone(self, site: Site, name: str) -> bool:
        """True if the line is a statement that only calls ``name`` and drops the result."""
        statements = (
            node
            for node in self.index(site.file).on(site.line, ast.Expr)
            if node.lineno == site.line
        )
        return any(
            isinstance(node.value, ast.Call) and name_of(node.value.func) == name
            for node in statements
        )

    def logs_at(self, site: Site) -> Kind | None:
        """Where the site's statement logs to, if it does nothing but call a log; else None."""
        statements = (node for node in self.index(site.file).on(site.line, ast.Expr))
        calls = [node.value for node in statements if isinstance(node.value, ast.Call)]
        kinds = (
            log_kind(call) or ("screen" if name_of(call.func) in LOGS else None) for call in calls
        )
        return next((kind for kind in kinds if kind is not None), None)

    def test_at(self, site: Site) -> bool:
        """True if the line's ``if``, ``while``, ``assert``, ternary, ``and``, ``or`` or ``not`` may
        ask a value for its truth.
        """
        return any(
            getattr(node, "lineno", 0) == site.line and _asks_truth(node)
            for node in self.index(site.file).on(site.line, ast.AST)
        )

    def move_in_function(self, file: str, line: int) -> int | None:
        """Line of the first ``.to(...)``, ``.cuda()`` or ``device=...`` in the function that begins
        at ``line``.

        ``line`` may be a decorator's, or that of a class: then its ``__call__``, ``__getitem__``
        and ``__init__`` are read.
        """
        for function in self._functions_from(file, line):
            moves = [call.lineno for call in nodes_in(function, ast.Call) if _places(call)]
            if moves:
                return min(moves)
        return None

    def moves_at(self, file: str, line: int) -> bool:
        """True if the line moves something to a device, or makes it there."""
        return any(
            call.lineno == line and _places(call) for call in self.calls_at(Site(file, line))
        )

    def _functions_from(self, file: str, line: int) -> list[Function | ast.Lambda]:
        defined = next(self.index(file).defined_at(line), None)
        if not isinstance(defined, ast.ClassDef):
            return [] if defined is None else [defined]
        methods = {item.name: item for item in defined.body if isinstance(item, Function)}
        called = ("__call__", "__getitem__", "__init__")
        return [methods[name] for name in called if name in methods]

    def every(self, kind: type[N]) -> Iterator[tuple[str, N]]:
        """All nodes of this class in the recorded files, each with its file."""
        return ((file, node) for file in self.texts for node in self.index(file).of(kind))

    @property
    def functions(self) -> Iterator[tuple[str, Function]]:
        """All functions and methods in the recorded files, each with its file."""
        return ((file, node) for file in self.texts for node in self.index(file).functions)

    def calls_of(self, *names: str) -> Iterator[tuple[str, ast.Call]]:
        """All calls of these last names in the recorded files, each with its file."""
        calls = ((file, self.index(file).calls) for file in self.texts)
        return (
            (file, call) for file, known in calls for name in names for call in known.get(name, ())
        )

    def nodes(self, file: str) -> Iterator[ast.AST]:
        """All syntax nodes of a file; none if it was not kept or does not parse."""
        return iter(self.index(file).nodes)

    def index(self, file: str) -> Index:
        """What is known of a file's syntax; empty if it was not kept or does not parse."""
        return index_of(self.texts.get(file, ""))


def the_only(found: Iterable[T]) -> T | None:
    """The one of them; None if there are several, or none."""
    match list(found):
        case [only]:
            return only
    return None


def _sets_attribute(node: ast.AST, path: str) -> bool:
    targets = targets_of(node) if isinstance(node, ast.Assign | ast.AugAssign) else ()
    written = (unparsed(target) for target in targets if isinstance(target, ast.Attribute))
    return any(text == path or text.endswith(f".{path}") for text in written)


def _asks_truth(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    return isinstance(node, ast.If | ast.While | ast.Assert | ast.IfExp | ast.BoolOp)


def _places(call: ast.Call) -> bool:
    """True if the call puts a tensor on a device: not a ``.to(dtype)``."""
    if any(given.arg == "device" for given in call.keywords):
        return True
    name = name_of(call.func)
    return name == "cuda" or (name == "to" and bool(call.args) and not _is_dtype(call.args[0]))


def _is_dtype(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr.startswith(DTYPES)


# -- statements ------------------------------------------------------------------------------------
# Which lines of a source file are one statement, and its text cut to what fits into a message.


LONGEST_TEXT = 60
"""Characters of source quoted in a message at most."""


class Statements:
    """Which lines of a file are one statement. ``read`` gives a file's recorded lines, or none."""

    def __init__(self, read: Callable[[str], Sequence[str]] = lambda _: ()) -> None:
        self._read = read
        self._files: dict[str, Mapping[int, range]] = {}

    def lines(self, site: Site) -> range:
        """Lines of the innermost statement that covers the site's, of one with a body its head
        alone; else the line itself.
        """
        known = self._files.get(site.file)
        if known is None:
            known = self._files[site.file] = _statements("\n".join(self._read(site.file)))
        return known.get(site.line, range(site.line, site.line + 1))


@lru_cache(maxsize=16)
def _statements(text: str) -> Mapping[int, range]:
    found = dict[int, range]()
    for node in index_of(text).nodes:  # outer ones come first, so the innermost stays
        if isinstance(node, ast.stmt):
            decorators = getattr(node, "decorator_list", None) or ()
            first = min([node.lineno, *(each.lineno for each in decorators)])
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else lines_of(node)[-1]
            lines = range(first, last + 1)
            found.update(dict.fromkeys(lines, lines))
    return found


CLOSES = {"(": ")", "[": "]", "{": "}"}


def shorten(text: str) -> str:
    """The text, cut for a message; of a line that goes on, what closes it is added."""
    if text[-1:] in CLOSES:
        text = f"{text}...{CLOSES[text[-1]]}"
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 3] + "..."


# -- excerpts --------------------------------------------------------------------------------------

AROUND = 4
"""Lines shown before and after the finding's own."""

NEAR = 12
"""A function that begins so few lines above is shown from its head on."""


def excerpt(recording: Recording, site: Site) -> Excerpt:
    """Around a site, from the source as it was recorded; empty if it was not."""
    lines = recording.source(site.file)
    blocks = _blocks("\n".join(lines))
    above = min(site.line, len(lines))
    heads = [first for first, last in blocks if first <= above and site.line <= last]
    first = max(1, site.line - AROUND)
    if heads and first - NEAR <= heads[-1] < first:
        first = heads[-1]
    opening = tuple((number, lines[number - 1]) for number in heads if number < first)
    return Excerpt(site.file, first, tuple(lines[first - 1 : site.line + AROUND]), opening)


@lru_cache(maxsize=16)
def _blocks(text: str) -> tuple[tuple[int, int], ...]:
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (
        (node.lineno, node.end_lineno or node.lineno)
        for node in index_of(text).nodes
        if isinstance(node, kinds)
    )
    return tuple(sorted(found, key=lambda block: (block[0], -block[1])))
