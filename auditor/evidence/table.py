"""Evidence of one recording and its tables: built lazily, once, from named parts; no torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast, overload

from auditor.model import Site
from auditor.recordings.folder import Recording, Row
from auditor.recordings.row import Row as TypedRow
from auditor.recordings.schema.run import LapseRow
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from typing import Self


T = TypeVar("T", bound="Table")
V = TypeVar("V")
R = TypeVar("R", bound=TypedRow)


class Table:
    """Base of evidence tables.

    ``parts`` names the files of a recording that the table is built from: the engine reads them to
    know which probes a set of rules needs, and a missing part makes the rules that ask for the
    table *skipped*. ``files`` names what the table reads besides parts (a memory snapshot): the
    table itself says what is missing.
    """

    parts: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ()
    absent: ClassVar[Mapping[str, str]] = {}
    """What it means that one of these parts is missing from a completed run."""
    of_rehearsals: ClassVar[bool] = False
    """True if a rehearsal records what this is built from, and a run on a CPU does not."""
    of_values: ClassVar[bool] = False
    """True if it tells what was computed: nothing where the device computes nothing."""

    @classmethod
    def build(cls, evidence: Evidence) -> Self:
        """Read the table. May raise :class:`auditor.rule.NotLooked` with a reason."""
        raise NotImplementedError

    @classmethod
    def without_parts(cls, evidence: Evidence) -> Self | None:
        """What is known although a part is missing; None if that is nothing."""
        return None


class Rows(Table, Generic[R]):
    """The rows of one type as their probe wrote them, for a rule that needs nothing else of them:
    ``detect(self, updates: Rows[UpdateRow])``.
    """

    kind: ClassVar[type[TypedRow]]

    def __init__(self, rows: Iterable[R] = ()) -> None:
        self._rows = tuple(rows)

    if not TYPE_CHECKING:

        def __class_getitem__(cls, kind: type[R] | TypeVar) -> Any:
            """The table of this type of rows, always the same class."""
            return (
                _rows_of_type(cls, kind)
                if isinstance(kind, type)
                else super().__class_getitem__(kind)
            )

    @classmethod
    def build(cls, evidence: Evidence) -> Self:
        """All of them, in the order in which they were written."""
        rows, places = evidence.rows(cls.kind), evidence.recording
        return cls(cast("R", row.read_from(places)) for row in rows)

    @classmethod
    def without_parts(cls, evidence: Evidence) -> Self | None:
        """None, where an older recording may lack them."""
        return cls() if cls.kind.optional else None

    def __iter__(self) -> Iterator[R]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


@cache
def _rows_of_type(table: type[Rows[Any]], kind: type[TypedRow]) -> type[Rows[Any]]:
    facts = {
        "kind": kind,
        "parts": (kind.part, *table.parts),
        "absent": {kind.part: kind.why_absent} if kind.why_absent else {},
        "of_rehearsals": kind.of_rehearsals,
        "of_values": kind.of_values,
    }
    return type(f"{table.__name__}[{kind.__name__}]", (table,), facts)


SNAPSHOT = "snapshot.pickle"
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What tables of a stranger's snapshot may raise: its rows are of torch's types
(:mod:`auditor.evidence.snapshot.file`), and may still be no history of any program.
"""


class Evidence:
    """All that is known of one recording: each part read once, each table built once, for rules,
    report and charts alike.

    A table of a rule pack is built with ``build(cls, recording)`` or ``build(cls, evidence)``: it
    is given this object, which answers like the :class:`Recording` too (``rows``, ``has``,
    ``site``, ``source``, ``manifest``, ...). Rows and tables are shared and never changed.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.builds: Counter[type[Table]] = Counter()
        """How often each table was built."""
        self._kept: dict[Any, Any] = {}

    # for tables of rule packs; our own name the recording, so that their types are checked
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # a copy of this object is not made by asking the recording
            if name.startswith("__") or name == "recording":
                raise AttributeError(name)
            return getattr(self.recording, name)

    # -- the recording -----------------------------------------------------------------------------

    @property
    def bare(self) -> str:
        """``trace``, ``snapshot`` or ``checkpoint`` if there is nothing but that; else empty."""
        return "" if self.recording.input == "run" else self.recording.input

    def steps_of(self, name: str) -> int:
        """Steps of the pass of this name."""
        passes = self.recording.manifest.get("passes", ())
        return sum(each["steps"] for each in passes if each["name"] == name)

    def has(self, part: str) -> bool:
        """True if the probe that writes this part ran (it may have seen nothing)."""
        return self._once(("has", part), lambda: self.recording.has(part))

    @overload
    def rows(self, kind: type[R]) -> list[R]: ...

    @overload
    def rows(self, kind: str) -> list[Row]: ...

    def rows(self, kind: type[R] | str) -> list[R] | list[Row]:
        """As :meth:`Recording.rows`, read once."""
        if isinstance(kind, str):
            return list(self._once(("rows", kind), lambda: self.recording.rows(kind)))
        typed = self._once(("typed rows", kind.part), lambda: self.recording.typed_rows(kind.part))
        return [row for row in typed if isinstance(row, kind)]

    def inside(self, name: str) -> Evidence | None:
        """Evidence of a further run inside this one (``replay``); None if it cannot be read."""
        return self._once(("inside", name), lambda: self._inside(name))

    def _inside(self, name: str) -> Evidence | None:
        found = self.recording.inside(name)
        return Evidence(found) if found is not None else None

    # -- what is computed from it ------------------------------------------------------------------

    def get(self, table: type[T]) -> T:
        """The table. Raises :class:`NotLooked` when the recording does not hold what it needs."""
        return cast("T", self._once(table, lambda: self._build(table)))

    def once(self, make: Callable[[Evidence], V]) -> V:
        """``make(self)``, called once, for several tables. A :class:`NotLooked` is kept, too."""
        return self._once(make, lambda: make(self))

    def tell(self, others: Others) -> None:
        """What the rules said that were asked so far."""
        self._kept[Others] = others

    def why_unsure(self, tables: Iterable[type[Table]]) -> str:
        """Why *nothing found* in these tables says nothing: a probe failed, or a row could not be read
        and was left out. Empty if neither is so.
        """
        needed = dict.fromkeys(part for table in tables for part in table.parts)
        for name, error, parts in self.once(_lapses):
            if needed.keys() & parts:
                return f"{BROKEN_PROBE}{name!r} failed and did not see all of it ({error})"
        return next((told for part in needed if (told := self.recording.unreadable(part))), "")

    def _build(self, table: type[Table]) -> Table:
        missing = [part for part in table.parts if not self.has(part)]
        if missing and (known := table.without_parts(self)) is not None:
            return known
        if missing:
            raise NotLooked(self.why_unsure((table,)) or why_missing(self, table, missing))
        if table.of_values and self.recording.device.null:
            raise NotLooked(ZEROS)
        self.builds[table] += 1
        try:
            return table.build(self)
        except MALFORMED as error:
            if SNAPSHOT not in table.files:
                raise
            raise NotLooked(
                f"the memory snapshot has another layout than torch's: {type(error).__name__}"
            ) from None

    def _once(self, key: Any, make: Callable[[], V]) -> V:
        if key not in self._kept:
            try:
                self._kept[key] = make()
            except NotLooked as reason:
                self._kept[key] = reason.with_traceback(None)
        kept = self._kept[key]
        if isinstance(kept, NotLooked):
            raise kept
        return cast("V", kept)


@dataclass(frozen=True)
class Others(Table):
    """What the other rules said, for a rule about what they leave over: it is asked after them."""

    asked: frozenset[str] = frozenset()
    """Codes of the rules that were asked before."""
    found: frozenset[str] = frozenset()
    """Codes of those that found something, silenced or not."""

    @classmethod
    def build(cls, evidence: Evidence) -> Others:
        """Nothing was asked: the engine knows what was."""
        return cls()

    def silent(self, *codes: str) -> bool:
        """Whether these rules were asked, and none of them found anything."""
        return self.asked.issuperset(codes) and self.found.isdisjoint(codes)


def rows_of(evidence: Evidence, kind: type[R]) -> list[R]:
    """All rows of a type; raises :class:`NotLooked` if their probe did not run."""
    if not evidence.has(kind.part):
        raise NotLooked(f"the recording holds no {kind.part}: that probe was not switched on")
    return evidence.rows(kind)


# -- what is absent --------------------------------------------------------------------------------

BROKEN_PROBE = "the probe "
"""How the reason begins of a rule that was skipped because a probe broke."""

ZEROS = "a null device computes nothing: values are zeros there and say nothing"
"""Why nothing is said of values that were read on one."""


def why_missing(evidence: Evidence, table: type[Table], parts: Sequence[str]) -> str:
    """Why the recording holds none of these parts of a table."""
    manifest = evidence.recording.manifest
    if evidence.bare:
        return f"a {evidence.bare} does not show it: audit run records it"
    outcome, shadow = manifest.get("outcome"), evidence.recording.device.shadow
    if outcome != "completed":
        return (
            f"the {'rehearsal' if shadow else 'run'} ended early ({outcome}), before this could be "
            "recorded"
        )
    if shadow and not table.of_rehearsals:
        return "only a run on the CPU or on a GPU records what this needs"
    known = (table.absent[part] for part in parts if part in table.absent)
    return next(known, f"the recording holds no {' and no '.join(parts)}")


def _lapses(evidence: Evidence) -> list[tuple[str, str, list[str]]]:
    """Probes that failed and their parts. A killed process's manifest does not know of them."""
    probes = evidence.recording.manifest.get("probes", {}).items()
    rows = evidence.rows(LapseRow)
    known = [(name, each.get("error", ""), each.get("parts", [])) for name, each in probes]
    return known + [(row.probe, row.error, row.parts) for row in rows]


# -- groups ----------------------------------------------------------------------------------------


class AtLine(Protocol):
    """What stands at a line."""

    @property
    def site(self) -> Site:
        """That line."""


L = TypeVar("L", bound=AtLine)


def together(each: Iterable[V], key: Callable[[V], Any]) -> Iterator[list[V]]:
    """Those of one key, by key; as they came within it."""
    for _, same in groupby(sorted(each, key=key), key=key):
        yield list(same)


def by_line(each: Iterable[L]) -> Iterator[list[L]]:
    """Those of one line, by file and line."""
    return together(each, lambda one: (one.site.file, one.site.line))
