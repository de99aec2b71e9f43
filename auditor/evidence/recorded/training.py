"""Whether steps trained anything: a backward, an optimizer's step, a changed parameter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.recordings.schema.run import StepRow, TrainingRow

if TYPE_CHECKING:
    from auditor.model import Training

NO_SIGN = "no backward and no optimizer step ran, and no parameter changed"


@dataclass(frozen=True)
class Trained(Table):
    """What was seen in ``steps`` steps. ``sign`` is the first sign of training: ``optimizer``,
    ``backward``, ``parameters``.

    Without one, ``operators`` and ``graphs`` say how many operators of torch ran in the ``watched``
    steps, and how many of those built an autograd graph.
    """

    parts: ClassVar[tuple[str, ...]] = ("training",)

    steps: int
    sign: str
    watched: int = 0
    operators: int = 0
    graphs: int = 0

    @classmethod
    def build(cls, evidence: Evidence) -> Trained:
        """From the row that the probe wrote at its end; without one (a run that was killed) nothing
        is said against the target.
        """
        row = next(iter(rows_of(evidence, TrainingRow)), None)
        steps = len(evidence.rows(StepRow))
        if row is None:
            return cls(steps, "unknown")
        return cls(steps, row.sign, row.watched, row.operators, row.graphs)

    @property
    def state(self) -> Training:
        """``forward`` and ``evaluated`` are both no training: of a forward alone nobody can say
        what it was meant for.

        The report is written in each case; the exit code is 2 for all three (docs/outputs.md).
        """
        if self.sign:
            return "trained"
        if self.watched and not self.operators:
            return "nothing"
        return "forward" if self.graphs else "evaluated"

    @property
    def caveat(self) -> str:
        """What was seen and what to do, in one sentence; empty where something was trained."""
        seen = f"the target trained nothing in {amounts.count(self.steps, 'step')}"
        name_it = "name the callable that takes one training step (package.module:callable)"
        if self.state == "nothing":
            watched = amounts.count(self.watched, "watched step")
            return (
                f"{seen}: no operator of torch ran in {watched}, and {NO_SIGN}; {name_it}, or "
                "raise --warmup if it learns later"
            )
        if self.state == "forward":
            return (
                f"{seen}: torch built autograd graphs, but {NO_SIGN}; if it learns only every N "
                f"steps give --steps above N, if it evaluates use torch.no_grad(), else {name_it}"
            )
        if self.state == "evaluated":
            ran = "torch ran, but " if self.operators else ""
            return (
                f"{seen}: {ran}{NO_SIGN}, so this audits an evaluation or a rollout; to audit "
                f"training {name_it}"
            )
        return ""
