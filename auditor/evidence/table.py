"""What every evidence table is: built lazily from named parts of a recording, typed, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor.recording import Recording, Row
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from typing_extensions import Self


class Table:
    """Base of evidence tables.

    ``parts`` names the files of a recording that the table is built from: the engine reads them to know which probes
    a set of rules needs, and a missing part makes the rules that ask for the table *skipped*. ``files`` names what the
    table reads besides parts (a memory snapshot): the table itself says what is missing.
    """

    parts: ClassVar[tuple[str, ...]] = ()
    files: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def build(cls, recording: Recording) -> Self:
        """Read the table from a recording. May raise :class:`auditor.rule.NotLooked` with a reason."""
        raise NotImplementedError


@dataclass(frozen=True)
class Others(Table):
    """What the other rules said, for a rule about what they leave over: it is asked after them."""

    asked: frozenset[str] = frozenset()
    """Codes of the rules that were asked before."""
    found: frozenset[str] = frozenset()
    """Codes of those that found something, silenced or not."""

    @classmethod
    def build(cls, recording: Recording) -> Others:
        """Nothing was asked: the engine knows what was."""
        return cls()

    def silent(self, *codes: str) -> bool:
        """Whether these rules were asked, and none of them found anything."""
        return self.asked.issuperset(codes) and self.found.isdisjoint(codes)


def rows_of(recording: Recording, part: str) -> list[Row]:
    """All rows of a part; raises :class:`NotLooked` when the probe that writes it did not run."""
    if not recording.has(part):
        raise NotLooked(f"the recording holds no {part}: that probe was not switched on")
    return recording.rows(part)
