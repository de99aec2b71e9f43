"""Lines that hold more at the end of each step: a tensor that is made anew, and larger, every time
(``bank = torch.cat([bank, z])``).
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from auditor.evidence.recorded.trend import Trend
from auditor.evidence.snapshot.by_line import held_at, told
from auditor.evidence.snapshot.file import snapshot_of
from auditor.evidence.snapshot.history import Allocations, Course
from auditor.evidence.snapshot.segments import origins_of
from auditor.evidence.source.files import Function, Index, Source, name_of
from auditor.evidence.source.self_concatenation import (
    JOINS,
    Accumulated,
    accumulated,
    accumulated_at,
    joined_lists,
    whole,
)
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.recordings.schema.run import StepRow
from auditor.rule import NotLooked
from auditor.syntax.index import names_in, nodes_in


@dataclass(frozen=True)
class GrowingLine:
    """What one line's blocks held at the end of each step, in bytes; ``accumulated`` where the line
    puts a tensor behind itself.
    """

    site: Site
    held: Trend = field(default_factory=Trend)
    accumulated: Accumulated | None = None


@dataclass(frozen=True)
class GrowingLines(Table):
    """Lines that held more at the end than at the beginning, those that put a tensor behind itself
    first, then by growth; empty where there is no history or the steps' times are unknown.
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    lines: tuple[GrowingLine, ...] = ()
    tensors: tuple[tuple[Site, str], ...] = ()
    lists: tuple[tuple[Site, str], ...] = ()
    """What the source lets grow without a bound, history or not: where, and its name. Lists are
    those that are joined to a tensor.
    """

    @classmethod
    def build(cls, evidence: Evidence) -> GrowingLines:
        """From the history of the device with most memory."""
        source = evidence.get(Source)
        named = tuple(dict.fromkeys(accumulated(source))), tuple(joined_lists(source))
        try:
            course = evidence.get(Allocations).devices[0]
            ends = _step_ends(evidence, course)
            return cls(_growing(evidence, course, ends) if len(ends) > 1 else (), *named)
        except NotLooked:
            return cls((), *named)


def _step_ends(evidence: Evidence, course: Course) -> tuple[int, ...]:
    """The last event before each step that began inside the history, and the last event of all."""
    begun = sorted({row.unix_us for row in evidence.rows(StepRow) if row.unix_us})
    ends = [bisect_left(course.time_us, start) - 1 for start in begun] if course.time_us else []
    last = len(course.reserved) - 1
    return tuple(sorted({end for end in ends if 0 <= end < last} | ({last} if ends else set())))


def _growing(evidence: Evidence, course: Course, ends: tuple[int, ...]) -> tuple[GrowingLine, ...]:
    history = told(snapshot_of(evidence), course, origins_of(evidence))
    source, found = evidence.get(Source), []
    for owner, held in zip(
        history.owners, zip(*held_at(history, ends).held, strict=True), strict=True
    ):
        if isinstance(owner, Site) and held[-1] > held[0]:
            trend = Trend(tuple(float(each) for each in held))
            longer = accumulated_at(source, owner) or handed_back_at(source, owner)
            found.append(GrowingLine(owner, trend, longer))
    return tuple(sorted(found, key=lambda line: (line.accumulated is None, -line.held.total)))


# -- handed back -----------------------------------------------------------------------------------
# Lists of tensors that a function is given and hands back longer, a step after the other:
# ``memory.append(torch.cat([old, hidden]))`` for each ``old`` of the list of the step before.


def handed_back_at(source: Source, site: Site) -> Accumulated | None:
    """What the line lets grow: the parameter of its function that holds the tensors of before.
    ``unbounded`` where nothing in the file cuts it, and no loop begins it anew.
    """
    index = source.index(site.file)
    function = index.scope_at(site.line)
    if not isinstance(function, Function):
        return None
    for new, joined in _appended(index, site.line):
        given = _given(function, joined)
        if given is None or not _returns(function, new):
            continue
        kept = set(_handed_in(index, function, given))
        if kept:
            return Accumulated(given, not any(_cuts(index, name) for name in {given, new, *kept}))
    return None


def _appended(index: Index, line: int) -> Iterator[tuple[str, set[str]]]:
    """Names of lists that the line appends joined tensors to, and names of what is joined."""
    for node in index.on(line, ast.Call):
        if len(node.args) != 1:
            continue
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        value = whole(node.args[0])
        if name_of(node.func) != "append" or not isinstance(owner, ast.Name):
            continue
        if isinstance(value, ast.Call) and name_of(value.func) in JOINS and value.args:
            parts = value.args[0]
            if isinstance(parts, ast.List | ast.Tuple):
                yield owner.id, {each.id for each in parts.elts if isinstance(each, ast.Name)}


def _given(function: Function, joined: set[str]) -> str | None:
    """The parameter over which a loop goes that gives one of these names."""
    parameters = {each.arg for each in (*function.args.args, *function.args.kwonlyargs)}
    for node in nodes_in(function, ast.For):
        if not names_in(node.target) & joined:
            continue
        over = [node.iter]
        if isinstance(node.iter, ast.Call) and name_of(node.iter.func) in ("zip", "enumerate"):
            over = list(node.iter.args)
        found = [each.id for each in over if isinstance(each, ast.Name) and each.id in parameters]
        if found:
            return found[0]
    return None


def _returns(function: Function, name: str) -> bool:
    """The list as it is, alone or among others."""
    for node in nodes_in(function, ast.Return):
        if node.value is not None:
            parts = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
            if any(isinstance(each, ast.Name) and each.id == name for each in parts):
                return True
    return False


def _handed_in(index: Index, function: Function, parameter: str) -> Iterator[str]:
    """Names that hold what a call returned and are given to the same call as the ``parameter``:
    ``mems`` of ``logits, mems = model(x, mems)``. The call is of the function, or of a module that
    has it as its ``forward``.
    """
    for node in index.of(ast.Assign):
        if not isinstance(node.value, ast.Call) or index.holds(function, node):
            continue
        if function.name not in ("forward", name_of(node.value.func)):
            continue
        given = _argument(node.value, function, parameter)
        for target in node.targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (
                each.id for each in parts if isinstance(each, ast.Name) and each.id == given
            )


def _argument(call: ast.Call, function: Function, parameter: str) -> str:
    """The name that a call gives as the parameter; empty where it gives none."""
    names = [each.arg for each in function.args.args if each.arg != "self"]
    named = [each.value for each in call.keywords if each.arg == parameter]
    placed = [value for name, value in zip(names, call.args, strict=False) if name == parameter]
    return next((each.id for each in (*named, *placed) if isinstance(each, ast.Name)), "")


def _cuts(index: Index, name: str) -> bool:
    """An assignment makes it of a part of itself, or begins it anew inside a loop."""
    for use in index.named.get(name, ()):
        node = index.nearest(use, ast.stmt)
        if not isinstance(node, ast.Assign) or name not in names_in(node.targets):
            continue
        of_itself = name in names_in(node.value)
        if of_itself and not isinstance(node.value, ast.Call):
            return True
        if not of_itself and index.nearest(node, ast.For, ast.While) is not None:
            return True
    return False
