"""What the rules about state share that should change, or not: a row of the census is a finding."""

from collections.abc import Iterator
from typing import ClassVar

from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Finding, Severity, Site
from auditor.recordings.schema.graph import CensusRow
from auditor.rule import Rule

from .lines import places_of


class CensusSays(Rule):
    """A subclass gives :attr:`SAID`, ``advice`` and a manual page, and :meth:`place` if the line to
    change is another one.
    """

    severity = Severity.WARNING
    since = "0.3"
    rehearsed = True
    everywhere = True

    SAID: ClassVar[dict[str, str]]
    """What is wrong at the line, and what follows from it, by the kind of its rows."""

    def said(self, row: CensusRow, **words: object) -> str:
        """What is wrong at this line; ``words`` are further ones of the text."""
        return self.SAID[row.kind].format(row=row, other=row.site_of(row.other_at), **words)

    def place(self, row: CensusRow, source: Source) -> Site | None:
        """The line to change."""
        return row.site

    def meant(self, row: CensusRow, source: Source) -> bool:
        """It may be on purpose."""
        return row.meant

    def detect(self, census: Rows[CensusRow], source: Source) -> Iterator[Finding]:
        """One finding for each row: a note where it may be meant."""
        for row in census:
            if row.kind in self.SAID:
                severity = Severity.NOTE if self.meant(row, source) else None
                site = self.place(row, source)
                places = places_of(site, row.site)
                yield Finding(
                    site, self.said(row), steps=row.steps, severity=severity, places=places
                )
