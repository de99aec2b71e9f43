"""Two runs compared: the first operator with another result on the way to a loss or weight."""

import ast
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import TypeVar

from auditor.model import Site
from auditor.recordings.folder import Recording
from auditor.recordings.schema.other_runs import (
    ReproduceOperatorRow,
    ReproduceOutcomeRow,
    ReproduceRow,
    ReproduceSourceRow,
    ReproduceValuesRow,
)
from auditor.syntax.index import index_of, name_of, nodes_in, targets_of

Key = tuple[str, int, str, str, int, int]
"""Pass, step, name, file, line, and the ordinal among equal rows."""

DIGITS = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
"""Bits of the significand (IEEE 754; bfloat16: 8)."""


R = TypeVar("R", ReproduceOperatorRow, ReproduceOutcomeRow)


class Log:
    """What one run did, as its recording has it; that may go afterwards."""

    def __init__(self, recording: Recording, *, blames: bool = True) -> None:
        rows = [row.read_from(recording) for row in recording.rows(ReproduceRow)]
        for row in rows:  # the folder goes
            row.site_of(getattr(row, "at", None))
        self.manifest = recording.manifest
        self.operators = [row for row in rows if isinstance(row, ReproduceOperatorRow)]
        self.sources = [row for row in rows if isinstance(row, ReproduceSourceRow)]
        self.values = next((row for row in rows if isinstance(row, ReproduceValuesRow)), None)
        self._outcomes = [row for row in rows if isinstance(row, ReproduceOutcomeRow)]
        causes = BLAMED if blames else ()
        self.to_blame = {cause: _to_blame(recording, cause) for cause in causes}
        """Lines of the program's files that may be to blame, by cause; only of the first run."""

    @cached_property
    def keys(self) -> dict[int, Key]:
        """The key of each operator, by its number."""
        keyed = _keyed(self.operators)
        return {row.number: key for key, row in keyed.items()}

    @cached_property
    def by_key(self) -> dict[Key, ReproduceOperatorRow]:
        """Operators by what they are known by in another run."""
        return _keyed(self.operators)

    @cached_property
    def outcomes(self) -> dict[Key, ReproduceOutcomeRow]:
        """Losses and weights, in order."""
        return _keyed(self._outcomes)

    def ancestors(self, numbers: list[int]) -> list[int]:
        """These operators and all that led to them, in order."""
        by_number = {row.number: row for row in self.operators}
        found: set[int] = set()
        waiting = [number for number in numbers if number in by_number]
        while waiting:
            number = waiting.pop()
            if number not in found:
                found.add(number)
                waiting += [each for each in by_number[number].inputs if each in by_number]
        return sorted(found)

    def drawn_before(self, name: str, number: int) -> list[ReproduceSourceRow]:
        """Rows of a source up to an operator."""
        return [row for row in self.sources if row.name == name and row.before <= number]


def _to_blame(recording: Recording, cause: str) -> list[Site]:
    files = [file for file in recording.manifest.get("sources", ()) if file.endswith(".py")]
    return [
        recording.site_at(file, line)
        for file in files
        for line in lines_to_blame("\n".join(recording.source(file)), cause)
    ]


def _keyed(rows: list[R]) -> dict[Key, R]:
    seen: Counter[tuple[str, int, str, str, int]] = Counter()
    found: dict[Key, R] = {}
    start: tuple[str, int, str, str, int]
    for row in rows:
        site = row.site
        file, line = ("", 0) if site is None else (site.file, site.line)
        start = (row.pass_name, row.step, row.name, file, line)
        found[(*start, seen[start])] = row
        seen[start] += 1
    return found


BEYOND_ALL = 1 << 62


@dataclass(frozen=True)
class Difference:
    """``outcome`` is the first loss or weights that differ. ``operator`` is the first on the way
    there with another result, ``twin`` that operator in the other run; None if no operator was
    seen. ``more`` are others with equal inputs.
    """

    outcome: ReproduceOutcomeRow
    operator: ReproduceOperatorRow | None = None
    twin: ReproduceOperatorRow | None = None
    more: tuple[ReproduceOperatorRow, ...] = ()

    @property
    def site(self) -> Site | None:
        """The user's line."""
        return self.outcome.site if self.operator is None else self.operator.site

    @property
    def number(self) -> int:
        """Of the operator; beyond all where none was seen."""
        return BEYOND_ALL if self.operator is None else self.operator.number


def difference(one: Log, other: Log) -> Difference | None:
    """Where two runs part; None if every loss and all weights are the same."""
    for key, outcome in one.outcomes.items():
        twin = other.outcomes.get(key)
        if twin is None or twin.digest != outcome.digest:
            return _traced(one, other, outcome)
    extra = next((row for key, row in other.outcomes.items() if key not in one.outcomes), None)
    return None if extra is None else Difference(extra)


def _traced(one: Log, other: Log, outcome: ReproduceOutcomeRow) -> Difference:
    by_number = {row.number: row for row in one.operators}
    for number in one.ancestors(outcome.inputs):
        row = by_number[number]
        twin = other.by_key.get(one.keys[number])
        if twin is None or twin.digest != row.digest:
            return Difference(outcome, row, twin)
    return Difference(outcome)


def difference_of_versions(one: Log, other: Log) -> Difference | None:
    """Where the runs of two versions of a program part; None if every loss and all weights are
    the same.

    Lines and operators of two versions have no common key. So losses and weights are paired by their
    order, and of what led to the first that differ, ``operator`` and ``more`` are those that gave
    what no operator of the other version did, from inputs that are known there; ``twin`` is the
    first such one of the other version.
    """
    for mine, theirs in zip_longest(one.outcomes.values(), other.outcomes.values()):
        if mine is None or theirs is None:
            return Difference(mine or theirs)
        if (mine.name, mine.digest) != (theirs.name, theirs.digest):
            origins, twins = _origins(one, mine, other), _origins(other, theirs, one)
            first, twin = next(iter(origins), None), next(iter(twins), None)
            return Difference(mine, first, twin, tuple(origins[1:]))
    return None


def _origins(log: Log, outcome: ReproduceOutcomeRow, other: Log) -> list[ReproduceOperatorRow]:
    known = {row.digest for row in other.operators}
    led = {row.number: row for row in log.operators}
    new = {
        number: led[number]
        for number in log.ancestors(outcome.inputs)
        if led[number].digest and led[number].digest not in known
    }
    return [row for row in new.values() if not new.keys() & set(row.inputs)]


def aside(one: Log, other: Log) -> int:
    """Operators that gave another result in the other run, wherever that went."""
    twins = ((row, other.by_key.get(key)) for key, row in one.by_key.items())
    return sum(twin is None or twin.digest != row.digest for row, twin in twins)


# -- what may be to blame --------------------------------------------------------------------------


def suspects(one: Log, other: Log, found: Difference) -> list[str]:
    """Of :data:`HELD`, what the program drew or read in other states before; nearest first."""
    last: dict[str, int] = {}
    for row in one.operators:
        twin = other.by_key.get(one.keys[row.number])
        drawn = row.generator and row.number <= found.number
        if drawn and (twin is None or twin.state != row.state):
            last["torch"] = row.number
    for name in ("random", "numpy"):
        mine, theirs = (log.drawn_before(name, found.number) for log in (one, other))
        if [row.value for row in mine] != [row.value for row in theirs]:
            last[name] = mine[-1].before if mine else 0
    for name, label in (
        ("clock", "clock"),
        ("numpy", "numpy.random.default_rng"),
        ("system", "system"),
    ):
        rows = [row for row in one.drawn_before(label, found.number) if not row.value]
        if rows:
            last[name] = max(rows[-1].before, last.get(name, 0))
    return sorted(last, key=lambda name: -last[name])


def drawn_otherwise(one: Log, other: Log, found: Difference) -> ReproduceOperatorRow | None:
    """The last operator up to that one which drew from a generator in another state."""
    for row in reversed(one.operators):
        if row.generator and row.number <= found.number:
            twin = other.by_key.get(one.keys[row.number])
            if twin is None or twin.state != row.state:
                return row
    return None


SEEDS = {
    "torch": ("torch.manual_seed",),
    "random": ("random.seed",),
    "numpy": ("numpy.random.seed", "numpy.random.default_rng"),
}
"""The functions that seed each generator."""


def seeded_otherwise(
    one: Log, other: Log, cause: str
) -> tuple[ReproduceSourceRow, ReproduceSourceRow] | None:
    """The first seed that the program gave the generator and the other run did not."""
    mine, theirs = (
        [row for row in log.sources if row.name in SEEDS.get(cause, ())] for log in (one, other)
    )
    pairs = zip(mine, theirs, strict=False)
    return next(((a, b) for a, b in pairs if a.value != b.value), None)


def source_of(one: Log, other: Log, found: Difference, cause: str) -> Site | None:
    """The last line before the operator that drew, or read, in one run only; None if none."""
    if cause == "torch":
        drawn = drawn_otherwise(one, other, found)
        return None if drawn is None else drawn.site
    names = (cause, "numpy.random.default_rng") if cause == "numpy" else (cause,)
    rows = [row for name in names for row in one.drawn_before(name, found.number)]
    rows.sort(key=lambda row: row.before)
    seeds = (row.name in SEEDERS and row.value for row in rows)
    sites = [row.site for row, seeded in zip(rows, seeds, strict=True) if row.site and not seeded]
    if cause == "system":  # NumPy asks it before it takes a seed, too
        lines = {(each.file, each.line) for each in one.to_blame[cause]}
        sites = [each for each in sites if (each.file, each.line) in lines] or sites
    return sites[-1] if sites else None


SEEDERS = frozenset(name for names in SEEDS.values() for name in names)


def ulps(one: Log, other: Log) -> int:
    """By how many units in the last place (of the larger of both) the kept values differ at most,
    where the operator was given the same; 0 if that cannot be said.
    """
    mine, theirs = one.values, other.values
    if mine is None or theirs is None or mine.dtype not in DIGITS or mine.given != theirs.given:
        return 0
    if len(mine.values) != len(theirs.values):
        return 0
    most = 0.0
    for a, b in zip(mine.values, theirs.values, strict=True):
        if a is None or b is None:
            return 0
        if a != b:
            exponent = math.frexp(max(abs(a), abs(b)))[1]
            most = max(most, abs(a - b) / math.ldexp(1.0, exponent - DIGITS[mine.dtype]))
    return math.ceil(most)


# -- lines that may be to blame --------------------------------------------------------------------
# Lines of the program's own text that may be to blame where no operator can say so: where sets are
# put in an order, hashes or addresses taken, generators made without a seed.


NO_ORDER = frozenset(
    "sorted len set frozenset min max any all isinstance type bool update union add discard".split()
)
"""Calls that ask nothing of the order of a set."""

SET_METHODS = frozenset("union intersection difference symmetric_difference copy".split())

GENERATORS = {
    "numpy": ("default_rng",),
    "system": ("Random", "RandomState", "default_rng", "uuid4", "urandom"),
}
"""Calls that, without arguments, differ from run to run; by cause."""


BLAMED = ("hash", *GENERATORS)
"""The causes that have such lines."""


def lines_to_blame(text: str, cause: str) -> list[int]:
    """Lines of a file, in order; ``hash`` stands for addresses, too. Empty for no Python."""
    tree = index_of(text).tree
    if tree is None:
        return []
    if cause == "hash":
        return sorted(set(_orders(tree)) or set(_sets(tree)))
    calls = (call for call in nodes_in(tree, ast.Call) if not call.args and not call.keywords)
    return sorted(
        {call.lineno for call in calls if name_of(call.func) in GENERATORS.get(cause, ())}
    )


def _orders(tree: ast.Module) -> Iterator[int]:
    """Where a set becomes a sequence, or a hash or an address a number."""
    named = {
        name_of(target)
        for given in nodes_in(tree, ast.Assign, ast.AnnAssign)
        if given.value is not None and _is_set(given.value, frozenset())
        for target in targets_of(given)
    } - {""}
    for call in nodes_in(tree, ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id in ("hash", "id"):
            yield call.lineno
        elif name_of(call.func) not in NO_ORDER:
            yield from (each.lineno for each in call.args if _is_set(each, named))
    for loop in nodes_in(tree, ast.For, ast.comprehension):
        if _is_set(loop.iter, named):
            yield loop.iter.lineno


def _sets(tree: ast.Module) -> Iterator[int]:
    for node in nodes_in(tree, ast.expr):
        if _is_set(node, frozenset()):
            yield node.lineno


def _is_set(node: ast.expr, named: frozenset[str] | set[str]) -> bool:
    """A set, by how it is written; ``named`` are variables and attributes that hold one."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in SET_METHODS:
            return _is_set(node.func.value, named)
        return isinstance(node.func, ast.Name) and node.func.id in ("set", "frozenset")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub):
        return _is_set(node.left, named) or _is_set(node.right, named)
    if isinstance(node, ast.Name | ast.Attribute):
        return name_of(node) in named
    return isinstance(node, ast.Set | ast.SetComp)
