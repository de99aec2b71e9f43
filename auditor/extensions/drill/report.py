"""The result of a drill: observations, verdict, and drill.json (docs/drill.md has its schema)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from auditor.extensions.drill import memory, values
from auditor.extensions.drill.log import Log, Observation, bad, count, good, listed, note
from auditor.extensions.drill.runs import Order, Pair
from auditor.recordings.schema.drill import (
    DrillEndRow,
    DrillLoadRow,
    DrillOptimizerRow,
    DrillSaveRow,
    DrillStartRow,
)
from auditor.runs.project_copy import reached

SCHEMA = "audit-drill/1"


@dataclass(frozen=True)
class DrillReport:
    """What was planted, what was seen, and whether the trainer survived."""

    order: Order
    pair: Pair
    observations: tuple[Observation, ...]

    @property
    def survived(self) -> bool:
        """No observation speaks against it."""
        return not any(each.kind == "bad" for each in self.observations)

    @property
    def verdict(self) -> str:
        """The last line."""
        fault = self.order.fault
        named = f"{fault.what}@{fault.step}"
        if self.survived:
            return f"survived {named}"
        speaking = [each for each in self.observations if each.kind == "bad"]
        briefs = [each.brief for each in speaking if each.brief] or [each.text for each in speaking]
        return f"FAILED {named}: {'; '.join(briefs)}"

    def to_json(self) -> str:
        """The content of drill.json."""
        from auditor import __version__

        fault, pair = self.order.fault, self.pair
        planted = pair.first.injected or pair.second.injected
        told = {"step": planted.step, "place": planted.place} if planted is not None else None
        content: dict[str, Any] = {
            "schema": SCHEMA,
            "tool": {"name": "torch-step-audit", "version": __version__},
            "target": self.order.target,
            "args": list(self.order.args),
            "steps": self.order.steps,
            "fault": {
                "what": fault.what,
                "step": fault.step,
                "where": fault.where,
                "planted": told,
            },
            "survived": self.survived,
            "verdict": self.verdict,
            "observations": [{"kind": each.kind, "text": each.text} for each in self.observations],
            "runs": [
                _run(name, log)
                for name, log in zip(pair.names, (pair.first, pair.second), strict=True)
            ],
            "environment": pair.environment,
            "recorded_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        return json.dumps(content, indent=2, allow_nan=False)


def _run(name: str, log: Log) -> dict[str, Any]:
    error = log.error or {}
    return {
        "name": name,
        "outcome": log.outcome,
        "error": {key: error.get(key) for key in ("type", "message", "file", "line")}
        if error
        else None,
        "steps": len(log.ends),
        "losses": [
            [step, loss if math.isfinite(loss) else str(loss)] for step, loss in log.losses.items()
        ],
        "saves": [
            {"path": save.path, "step": save.step, "tensors": save.tensors, "nonfinite": save.n}
            for save in log.of(DrillSaveRow)
        ],
    }


def judged(order: Order, pair: Pair) -> DrillReport:
    """The report on both runs."""
    return DrillReport(order, pair, tuple(_observed(order, pair)))


def _observed(order: Order, pair: Pair) -> Iterator[Observation]:
    if pair.changed:
        yield Observation("note", reached(pair.changed))
    what = order.fault.what
    if what == "kill":
        yield from judge(pair.first, pair.second)
    elif what == "oom":
        yield from memory.judge(pair.first, pair.second)
    else:
        yield from values.judge("NaN" if what == "nan" else "infinity", pair.first, pair.second)


# -- restart ---------------------------------------------------------------------------------------
# The process was killed and the target started again: from which step does it go on, and with
# what?


def judge(killed: Log, restarted: Log) -> Iterator[Observation]:
    """Observations in the order of events."""
    fault = killed.injected
    assert fault is not None
    yield note(f"The process was killed at step {fault.step} {fault.place}.")
    saves = killed.of(DrillSaveRow)
    if saves:
        yield note(f"Its newest checkpoint was {saves[-1].path}, saved at step {saves[-1].step}.")
    else:
        yield note("No checkpoint had been saved with torch.save by then.")
    if restarted.outcome not in ("completed", "not reached"):
        yield bad(f"Started again, the target failed with {restarted.said}.")
    loads = list(dict.fromkeys(event.path for event in restarted.of(DrillLoadRow)))
    if loads:
        yield note(f"Started again, it loaded {listed(loads)}.")
    if restarted.start is not None:
        yield from _resumed(killed, restarted.start, fault.step, loaded=bool(loads))


def _resumed(
    killed: Log, start: DrillStartRow, step: int, *, loaded: bool
) -> Iterator[Observation]:
    """``start`` is the restart just before its first optimizer step."""
    after = next(
        (number for number, end in sorted(killed.ends.items()) if end.weights == start.weights),
        None,
    )
    if after is None and killed.start is not None and killed.start.weights == start.weights:
        yield bad(
            f"It began again from the initial weights: {count(step, 'completed step')} of progress "
            "lost."
        )
    elif after is None and not loaded:
        yield bad(
            "It began again with weights of its own and loaded nothing: "
            f"{count(step, 'completed step')} of progress lost."
        )
    elif after is None:
        yield note(
            "It began with weights that no step of the killed run had ended with, so the lost "
            "steps were not counted."
        )
    else:
        lost = step - after - 1
        yield good(
            f"It went on with the weights of the end of step {after}: "
            f"{count(lost, 'completed step')} of progress lost."
        )
        yield from _optimizer(killed.ends[after], start)
        yield from _rate(killed, after, start)


def _optimizer(end: DrillEndRow, start: DrillStartRow) -> Iterator[Observation]:
    if end.states and not start.states:
        yield bad("The optimizer's state was not restored: its moments began again at zero.")
    elif end.states and end.state != start.state:
        yield bad("The optimizer's state is not the one that belonged to these weights.")
    elif end.states:
        yield good("The optimizer's state was restored.")


def _rate(killed: Log, after: int, start: DrillStartRow) -> Iterator[Observation]:
    """Compared at the same moment, just before the optimizer steps: some trainers set the rate
    first, some last in a step.
    """
    then = next((event for event in killed.of(DrillOptimizerRow) if event.step == after + 1), None)
    if then is not None and then.rates != start.rates:
        yield bad(
            f"The learning rate began again at {_rates(start)}; the killed run had {_rates(then)} "
            "at that step."
        )


def _rates(event: DrillStartRow | DrillOptimizerRow) -> str:
    rates = dict.fromkeys(event.rates)
    return ", ".join("unknown" if rate is None else f"{rate:.4g}" for rate in rates)
