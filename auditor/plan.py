"""What the parent asks the recording child to do: plain data that both sides of the process seam read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Literal

TRACE_STEPS = 5
"""Steps of the loud pass that also run under torch.profiler: a trace takes 1-2 MB per step before compression."""

ORIGIN_STEPS = 3
"""Steps of the origin pass: it runs two Python dispatch modes, several times slower than the step itself."""

MEMORY_STEPS = 3
"""Steps of the memory pass (CUDA): allocation history with stacks."""


@dataclass(frozen=True)
class Plan:
    """One recording to make. ``steps`` and ``warmup`` count steps of one pass; ``parts`` are the parts that rules need."""

    target: str
    args: tuple[str, ...]
    steps: int
    warmup: int
    device: Literal["auto", "cuda", "cpu"]
    folder: str
    parts: tuple[str, ...]
    progress_fd: int | None = None
    quiet_steps: int | None = None
    loud_steps: int | None = None
    trace_steps: int = TRACE_STEPS

    def fitted(self, available: int) -> Plan:
        """The same plan for a target that ends after ``available`` steps: a short warm-up, the rest shared out."""
        warmup = min(self.warmup, max(1, available // 10))
        rest = max(2, available - warmup - ORIGIN_STEPS)
        half = min(self.steps, max(1, rest // 2))
        return replace(self, warmup=warmup, quiet_steps=half, loud_steps=min(self.steps, max(1, rest - half)))

    def to_json(self) -> str:
        """The plan as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Plan:
        """Inverse of :meth:`to_json`."""
        data = json.loads(text)
        data["args"], data["parts"] = tuple(data["args"]), tuple(data["parts"])
        return Plan(**data)
