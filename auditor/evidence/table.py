"""What every evidence table is: built lazily from named parts of a recording, typed, without torch."""

from __future__ import annotations

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


def rows_of(recording: Recording, part: str) -> list[Row]:
    """All rows of a part; raises :class:`NotLooked` when the probe that writes it did not run."""
    if not recording.has(part):
        raise NotLooked(f"the recording holds no {part}: that probe was not switched on")
    return recording.rows(part)
