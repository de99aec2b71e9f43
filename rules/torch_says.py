"""What rules that repeat torch's warnings share: the user's line, the defect and what to do."""

from collections.abc import Iterable, Iterator
from typing import ClassVar

from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Rows, by_line
from auditor.model import Finding
from auditor.recordings.schema.run import TorchWarningRow
from auditor.rule import Rule


class TorchSays(Rule):
    """A subclass gives :attr:`warning` and :attr:`defect`, ``advice`` and a manual page."""

    since = "0.3"
    rehearsed = True
    everywhere = True

    warning: ClassVar[str]
    """A name of :data:`auditor.capture.probes.step.torch_warnings.TEXTS`."""
    defect: ClassVar[str]
    """What is wrong at the line, and what follows from it."""

    def detect(self, warnings: Rows[TorchWarningRow], steps: Steps) -> Iterator[Finding]:
        return self.at_lines(warnings, steps)

    def at_lines(self, warnings: Iterable[TorchWarningRow], steps: Steps) -> Iterator[Finding]:
        """Counted in the diagnostic pass; outside it (torch warns once) no number is given."""
        watched = len(steps.loud)
        for rows in by_line(row for row in warnings if row.name == self.warning):
            seen = [row for row in rows if row.pass_name == "loud" and row.step < watched]
            yield Finding(
                rows[0].site,
                self.defect,
                steps=len({row.step for row in seen}),
                per_step=sum(row.n for row in seen) / watched if seen else 0.0,
                facts=(("torch says", rows[0].text),),
            )
