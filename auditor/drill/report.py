"""The result of a drill: observations, verdict, and drill.json (docs/drill.md has its schema)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from auditor.drill import memory, restart, values
from auditor.drill.log import Log, Observation
from auditor.drill.runs import Order, Pair
from auditor.recordings.schema import DrillSaveRow
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
        yield from restart.judge(pair.first, pair.second)
    elif what == "oom":
        yield from memory.judge(pair.first, pair.second)
    else:
        yield from values.judge("NaN" if what == "nan" else "infinity", pair.first, pair.second)
