"""What every row is: a struct with one JSON line's fields, its part, and a sentence per field."""

from __future__ import annotations

from copy import copy
from typing import Annotated, Any, ClassVar, Protocol, Self, overload

import msgspec

from auditor.model import Site


def doc(text: str) -> msgspec.Meta:
    """What a field holds, for docs/recording.md."""
    return msgspec.Meta(description=text)


def older(value: Any) -> Any:
    """Default of a field that recordings of earlier versions lack. We always write it, also where
    it has this value.

    Other fields with a default are left out of the row where they have it.
    """
    return msgspec.field(default_factory=lambda: copy(value))


class Places(Protocol):
    """What knows the lines that rows name: a recording."""

    def site(self, number: int, /) -> Site:
        """The site of this number."""

    def site_at(self, file: str, line: int, function: str = "", /) -> Site:
        """A site from its parts; ``file`` may be absolute."""

    def via(self, number: int, /) -> str:
        """The library's function below the line of this number; empty if there is none."""


class _AtLine(Protocol):
    @property
    def at(self) -> int: ...


class _SiteOfRow:
    """``row.site``: None only of rows whose ``at`` may be."""

    @overload
    def __get__(self, row: None, kind: type[Row]) -> Self: ...

    @overload
    def __get__(self, row: _AtLine, kind: type[Row]) -> Site: ...

    @overload
    def __get__(self, row: Row, kind: type[Row]) -> Site | None: ...

    def __get__(self, row: Any, kind: type[Row]) -> Any:
        return self if row is None else row.site_of(row.at)


class Row(msgspec.Struct, kw_only=True, omit_defaults=True, dict=True):
    """A row of :attr:`part`: what a probe writes, and what a rule reads. Keys of later versions are
    ignored; a value of another type makes the row unreadable.
    """

    part: ClassVar[str] = ""
    when: ClassVar[str] = ""
    """In which passes it is written, for docs/recording.md."""
    why_absent: ClassVar[str] = ""
    """What it means that a run which was completed has no such part; else the reason names it."""
    optional: ClassVar[bool] = False
    """True if older recordings lack the part, and a rule that asks for it has more to go by."""
    of_rehearsals: ClassVar[bool] = False
    """True if a rehearsal writes it, and a run on a CPU does not."""
    of_values: ClassVar[bool] = False
    """True if it says what was computed: nothing on a device that computes nothing."""

    def read_from(self, places: Places) -> Self:
        """Give this row the lines that it names."""
        self.__dict__["places"] = places
        return self

    @property
    def home(self) -> Places:
        """What it was read from."""
        places: Places = self.__dict__["places"]
        return places

    @overload
    def site_of(self, number: int) -> Site: ...

    @overload
    def site_of(self, number: int | None) -> Site | None: ...

    def site_of(self, number: int | None) -> Site | None:
        """Where the site of this number is, one of this row's; None for none."""
        return None if number is None else self.home.site(number)

    site = _SiteOfRow()
    """The user's line of a row that has one in ``at``."""


class PassRow(Row, kw_only=True):
    """A row of one step. Who adds it to a recording stamps it; without both it is not read."""

    pass_name: Annotated[str, doc("the pass")] = msgspec.field(name="pass", default="")
    step: Annotated[int, doc("0-based within the pass")] = -1


class Item(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Something that a row holds more than one of."""


At = Annotated[int, doc("the line: a number in `sites`")]
MaybeAt = Annotated[
    int | None, doc("the line: a number in `sites`, null if none of the user's is on the stack")
]
N = Annotated[int, doc("how often")]
Us = Annotated[float, doc("host time inside (us)")]


class LineRow(PassRow, kw_only=True):
    """What one line of the user's did in one step of a pass, and how often."""

    passes: ClassVar[tuple[str, ...]] = ("quiet", "loud")
    """In which passes it is counted; judged is the first of them that completed a step."""

    at: At
    n: N = older(1)
    us: Us = older(0.0)


class CalledRow(LineRow, kw_only=True):
    """A row with the user's frames that led to the line."""

    stack: Annotated[list[int], doc("the user's frames, outermost first, in `sites`")] = older([])
