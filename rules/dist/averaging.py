"""DIST005 and 13: what ranks average."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from auditor import amounts
from auditor.evidence.recorded.data_parallel import DataParallel, DataParallelModule
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..lines import places_of
from .rows import CollectiveRow


@dataclass(frozen=True)
class AveragedTooOften(Rule):
    """Gradients are averaged over the ranks more than once per optimizer step"""

    code = "DIST005"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Run forward and backward of every micro-batch but the last in `with "
        "model.no_sync():`; both must be inside. If these are several losses of one batch, "
        "add them and call backward once."
    )

    least: int = knob(3, "Report only if it happened in this many optimizer steps.")
    share: float = knob(0.5, "Report only if it happened in this share of the optimizer's steps.")
    ranks: int = knob(2, "Report only with at least this many ranks.")

    def detect(self, modules: DataParallel) -> Iterator[Finding]:
        for module in modules.each:
            often = [n for n in module.averaged if n > 1]
            if module.ranks < self.ranks or len(often) < self.least:
                continue
            if len(often) < self.share * len(module.averaged):
                continue
            usual = int(median(often))
            yield Finding(
                module.at,
                f"gradients of `{module.what}` are averaged over {module.ranks} ranks after each "
                f"of {usual} backward passes; the last of them is enough",
                steps=len(often),
                per_step=float(usual - 1),
                facts=(
                    ("averaged per optimizer step", f"{usual} times"),
                    ("gradients", amounts.size(module.nbytes)),
                    (
                        "sent in vain by each rank",
                        f"{amounts.size((usual - 1) * module.nbytes)} per step",
                    ),
                ),
            )


@dataclass(frozen=True)
class SteppedUnaveraged(Rule):
    """The optimizer steps on gradients that were not averaged over the ranks"""

    code = "DIST013"
    severity = Severity.ERROR
    since = "0.1"
    advice = (
        "Run the last micro-batch before optimizer.step() outside of no_sync(), forward and "
        "backward, even if an epoch ends with fewer micro-batches; run all others inside."
    )

    least: int = knob(1, "Report from this many steps on partly averaged gradients.")
    alone: int = knob(5, "Report from this many steps if no backward averaged any gradient.")
    ranks: int = knob(2, "Report only with at least this many ranks.")
    sent: float = knob(
        0.25,
        "Report nothing if the program itself sends this share of the gradients' bytes.",
    )

    def detect(self, modules: DataParallel, collectives: Rows[CollectiveRow]) -> Iterator[Finding]:
        sent: Counter[int] = Counter()
        for row in collectives:
            sent[row.step] += row.bytes
        most = max(sent.values(), default=0)
        for module in modules.each:
            if module.ranks < self.ranks or most >= self.sent * module.nbytes:
                continue
            if len(module.bypassed) == module.stepped >= self.alone:
                yield _bypassed(module)
            least = self.least if module.averaged else self.alone
            if len(module.apart) < least:
                continue
            places = Counter((each.entered_at, each.backward_at) for each in module.apart)
            entered_at, backward_at = places.most_common(1)[0][0]
            last = module.apart[-1]
            before = (
                "no earlier one averages them either"
                if not last.averaged
                else f"only {amounts.count(last.averaged, 'earlier pass', 'earlier passes')} "
                "averaged them"
            )
            passes = f"{last.averaged} averaged, then {last.local} inside no_sync()"
            yield Finding(
                entered_at or backward_at,
                f"the last backward before the step of `{module.what}` runs inside no_sync(), and "
                f"{before}: the {module.ranks} ranks step with different gradients",
                steps=len(module.apart),
                per_step=1.0,
                facts=(
                    (
                        "steps with gradients that were not averaged",
                        f"{len(module.apart)} of {module.stepped}",
                    ),
                    ("backward passes before the last of them", passes),
                ),
                places=places_of(entered_at, backward_at),
            )


def _bypassed(module: DataParallelModule) -> Finding:
    """No backward of any step averaged anything."""
    ((called_at, n),) = Counter(module.bypassed).most_common(1)
    made = (("wrapped at", str(module.made_at)),) if module.made_at is not None else ()
    return Finding(
        called_at,
        f"the loss comes from a call that bypasses the DistributedDataParallel around "
        f"`{module.what}`, so no gradient is averaged: the {module.ranks} ranks step with different "
        "gradients",
        steps=n,
        per_step=1.0,
        facts=(
            (
                "steps with gradients that were not averaged",
                f"{module.stepped} of {module.stepped}",
            ),
            *made,
        ),
        remedy=Remedy(
            "Call the wrapped module: model(x), not model.module(x). Move what another method of the "
            "inner module does into its forward()."
        ),
    )
