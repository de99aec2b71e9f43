"""Sets and drops keywords of one call, in the style that the call is written in."""

from __future__ import annotations

import ast
import itertools
import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from auditor.model import Edit
from auditor.patch.module import Change, Module, same
from auditor.patch.source import Refused, SourceText, Splice, parse_expression


@dataclass
class KeywordEdits:
    """What all edits together want of the keywords of one call."""

    sets: dict[str, str] = field(default_factory=dict)
    drops: set[str] = field(default_factory=set)

    def add(self, edit: Edit) -> None:
        """Take one more edit. Raises :class:`Refused` if it contradicts an earlier one."""
        name, value = edit.keyword, edit.value.strip()
        dropping = edit.action == "drop_keyword"
        if not name.isidentifier() or keyword.iskeyword(name):
            raise Refused(f"`{name}` is not the name of a keyword")
        if name in (self.sets if dropping else self.drops) or (
            not dropping and self.sets.get(name, value) != value
        ):
            raise Refused(f"an earlier edit of this call wants something else of `{name}`")
        if dropping:
            self.drops.add(name)
        else:
            self.sets[name] = value


def change_keywords(module: Module, call: ast.Call, edits: KeywordEdits) -> Change:
    """The one change that makes all keyword edits of a call. Raises :class:`Refused`."""
    present = {item.arg: item for item in call.keywords}
    if None in present and edits.sets:
        raise Refused("the call takes **keywords that its source does not show")
    values = {name: parse_expression(text) for name, text in edits.sets.items()}
    _refuse_if_done(present, values, edits)
    added = {name: text for name, text in edits.sets.items() if name not in present}
    if added and edits.drops:
        raise Refused("keywords of one call are either added or dropped by one patch, not both")
    arguments = read_arguments(module.source, call)
    splices = [
        *(
            Splice(*module.source.span(present[name].value), edits.sets[name])
            for name in edits.sets.keys() - added.keys()
        ),
        *_add(module.source, arguments, [f"{name}={text}" for name, text in added.items()]),
        *_drop(module.source, arguments, edits.drops),
    ]
    return Change(tuple(splices), partial(_rewrite, call, values, edits.drops))


def _refuse_if_done(
    present: Mapping[str | None, ast.keyword], values: Mapping[str, ast.expr], edits: KeywordEdits
) -> None:
    for name, value in values.items():
        if name in present and same(present[name].value, value):
            raise Refused(f"`{name}` is already {edits.sets[name]}")
        if name in present and not _is_plain(present[name].value):
            raise Refused(
                f"`{name}` is decided by `{ast.unparse(present[name].value)}`: change it where "
                "that is set"
            )
    for name in sorted(edits.drops):
        if name not in present:
            raise Refused(f"the call already has no `{name}`")


def _is_plain(value: ast.expr) -> bool:
    """True for what is written out in the call: a constant, some constants, ``torch.float16``."""
    while isinstance(value, ast.UnaryOp):
        value = value.operand
    if isinstance(value, (ast.Tuple, ast.List)):
        return all(map(_is_plain, value.elts))
    root = value
    while isinstance(root, ast.Attribute):
        root = root.value
    of_torch = (
        isinstance(value, ast.Attribute) and isinstance(root, ast.Name) and root.id == "torch"
    )
    return of_torch or isinstance(value, ast.Constant)


def _rewrite(call: ast.Call, values: Mapping[str, ast.expr], drops: set[str]) -> None:
    call.keywords = [item for item in call.keywords if item.arg not in drops]
    present = {item.arg: item for item in call.keywords}
    for name, value in values.items():
        if name in present:
            present[name].value = value
        else:
            call.keywords.append(ast.keyword(arg=name, value=value))


def _add(source: SourceText, arguments: Arguments, words: list[str]) -> Iterator[Splice]:
    """Behind the last argument: on its line, or on own lines where the last one has its own."""
    if not words:
        return
    if not arguments.slots:
        yield Splice(arguments.opened, arguments.opened, ", ".join(words))
        return
    last = arguments.slots[-1]
    if isinstance(last.node, ast.GeneratorExp) and source.span(last.node)[0] < last.start:
        raise Refused("a generator without parentheses of its own must stay the only argument")
    indent = source.before(last.start)
    own_line = not indent.strip()
    before = f"\n{indent}" if own_line else " "
    behind = last.end if last.after is None else last.after
    # A comment stays with the argument that it stands behind.
    at = source.line_end(behind) if own_line and source.rest_is_idle(behind) else behind
    if last.after is not None:
        yield Splice(at, at, "".join(f"{before}{word}," for word in words))
        return
    text = ",".join(f"{before}{word}" for word in words)
    if at == last.end:
        yield Splice(at, at, f",{text}")
    else:
        yield from (Splice(last.end, last.end, ","), Splice(at, at, text))


def _drop(source: SourceText, arguments: Arguments, drops: set[str]) -> Iterator[Splice]:
    """Cut runs of neighbouring arguments with their commas."""
    slots = arguments.slots
    doomed = [slot.keyword in drops for slot in slots]
    if doomed and all(doomed) and "#" not in source.text[arguments.opened : arguments.closed]:
        yield Splice(arguments.opened, arguments.closed)
        return
    for lost, numbers in itertools.groupby(range(len(slots)), key=doomed.__getitem__):
        if not lost:
            continue
        inside = list(numbers)
        first = inside[0]
        run = replace(slots[inside[-1]], start=slots[first].start)
        before = slots[first - 1] if first else None
        yield from (
            _drop_last(source, run, before)
            if run.after is None
            else [_drop_inner(source, run, run.after, before)]
        )


def _drop_inner(source: SourceText, run: Slot, after: int, before: Slot | None) -> Splice:
    """Cut a run that ends in a comma: its lines, or from the comma before it, or up to the next."""
    if _has_own_lines(source, run.start, after):
        return _lines(source, run.start, after)
    if (
        before is not None
        and before.after is not None
        and before.after >= source.line_start(run.start)
    ):
        return Splice(before.after, after)
    rest = source.text[after : source.line_end(after)]
    return Splice(run.start, after + len(rest) - len(rest.lstrip()))


def _drop_last(source: SourceText, run: Slot, before: Slot | None) -> Iterator[Splice]:
    """Cut a run that ends without a comma, and the comma before it."""
    own_lines = _has_own_lines(source, run.start, run.end)
    cut = _lines(source, run.start, run.end) if own_lines else Splice(run.start, run.end)
    if before is None or before.after is None:
        yield cut
    elif own_lines or "#" in source.text[before.end : run.start]:
        yield from (Splice(before.after - 1, before.after), cut)
    else:
        yield Splice(before.end, run.end)


def _has_own_lines(source: SourceText, start: int, end: int) -> bool:
    return not source.before(start).strip() and source.rest_is_idle(end)


def _lines(source: SourceText, start: int, end: int) -> Splice:
    return Splice(source.line_start(start), min(source.line_end(end) + 1, len(source.text)))


# -- arguments -------------------------------------------------------------------------------------
# Where each argument of one call is in the text: between the spans of their nodes stand brackets,
# commas and comments alone.

_NO_CODE = r"(?:[\s\\]|#[^\n]*+)*+"
_BEGINS = re.compile(rf"{_NO_CODE}(?:\){_NO_CODE})*\(")
_CLOSES = re.compile(rf"{_NO_CODE}\)")
_ENDS = re.compile(rf"{_NO_CODE},")
_SKIPPED = re.compile(_NO_CODE)


@dataclass(frozen=True)
class Slot:
    """One argument as written, with its parentheses. ``after`` is behind its comma, if any."""

    node: ast.expr | ast.keyword
    start: int
    end: int
    after: int | None

    @property
    def keyword(self) -> str | None:
        """Keyword name, None for a positional or starred argument."""
        return self.node.arg if isinstance(self.node, ast.keyword) else None


@dataclass(frozen=True)
class Arguments:
    """The inside of a call's parentheses, ``text[opened:closed]``, and its arguments."""

    opened: int
    closed: int
    slots: tuple[Slot, ...]


def read_arguments(source: SourceText, call: ast.Call) -> Arguments:
    """The arguments of a call. Raises :class:`Refused` if its text and its syntax do not agree."""
    text, closed = source.text, source.span(call)[1] - 1
    begin = _BEGINS.match(text, source.span(call.func)[1])
    if begin is None or text[closed] != ")":
        raise Refused("the arguments of the call cannot be read")
    nodes: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    slots, at = list[Slot](), begin.end()
    for node in sorted(nodes, key=source.span):
        start = _end_of(_SKIPPED, text, at)
        first, end = source.span(node)
        end = min(end, closed)  # a generator without parentheses of its own has those of the call
        for _ in range(re.sub(r"#[^\n]*", "", text[start:first]).count("(")):
            end = _end_of(_CLOSES, text, end)
        comma = _ENDS.match(text, end, closed)
        slots.append(Slot(node, start, end, comma.end() if comma else None))
        at = comma.end() if comma else end
    return Arguments(begin.end(), closed, tuple(slots))


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    if found is None:
        raise Refused("the arguments of the call cannot be read")
    return found.end()
