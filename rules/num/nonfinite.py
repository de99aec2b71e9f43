"""Numbers that stopped being finite: at which step, what was bad, and where it was born."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from auditor import amounts
from auditor.evidence.recorded.amp import LARGEST
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Site
from auditor.recordings.schema.numerics import BirthRow, NonfiniteRow
from auditor.recordings.schema.run import StepRow

from .rows import NormRow

REPLAY = "replay"
"""Folder of the replay's recording inside the one that it explains (docs/recording.md)."""

KINDS = {
    "exp": ("exp", "expm1", "exp2", "sinh", "cosh"),
    "log": ("log", "log2", "log10", "log1p", "logit"),
    "sqrt": ("sqrt", "rsqrt", "pow", "linalg_vector_norm"),
    "div": ("div", "reciprocal"),
    "mul": ("mul",),
    "softmax": ("softmax", "log_softmax"),
}
"""Operators that go wrong in the same way, by kind."""

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "convolution")
"""Operators that multiply activations with weights."""

RUNAWAY = 1e18
"""Magnitude of an activation that only many products in a row reach: the square of it is about the
largest number of float32 and bfloat16 (3.4e38).
"""

Phase = Literal["forward", "backward", "optimizer", "input", "parameter", "state"]


@dataclass(frozen=True)
class InputRange:
    """What an operator was given: the finite part's range (None: none, or overwritten)."""

    dtype: str
    low: float | None = None
    high: float | None = None
    share_nonfinite: float | None = 0.0

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.dtype}, range unknown"
        bad = (
            f", {amounts.percent(self.share_nonfinite)} not finite" if self.share_nonfinite else ""
        )
        return f"{self.dtype} from {self.low:.4g} to {self.high:.4g}{bad}"


@dataclass(frozen=True)
class Birth:
    """What made the first non-finite value that reached a gradient or a parameter.

    ``phase`` says when: an operator of the ``forward``, the ``backward`` (``node`` is autograd's,
    ``site`` the forward line behind it) or the ``optimizer``; or none did, because it came in with
    the ``input``, a ``parameter`` or optimizer ``state``. ``site`` is None where no line of the
    user's was on the stack; ``constants`` are non-finite numbers that the line itself wrote.
    """

    op: str
    phase: Phase
    value: str
    step: int
    site: Site | None = None
    dtype: str = ""
    node: str = ""
    module: str = ""
    fill: bool = False
    constants: tuple[str, ...] = ()
    inputs: tuple[InputRange, ...] = ()
    entered: Site | None = None
    """Of data that a module was given: where the program called the outermost one."""
    dataset: str = ""
    """Of data that a DataLoader gave: class of the dataset."""

    @property
    def made(self) -> bool:
        """True if an operator of the step made it."""
        return self.phase in ("forward", "backward", "optimizer")

    @property
    def was_there(self) -> bool:
        """True if a parameter or the optimizer's state held it before the step began."""
        return self.phase in ("parameter", "state")

    @property
    def came_with_data(self) -> bool:
        """True if it was in the step's data already, and not as a mask."""
        return self.phase == "input" and not self.fill

    @property
    def own_function(self) -> str:
        """Name of the user's own ``autograd.Function`` in whose backward it was made: torch numbers
        its nodes, users do not.
        """
        return self.node.removesuffix("Backward") if self.node.endswith("Backward") else ""

    @property
    def forward_name(self) -> str:
        """The operator about as the user wrote it: ``sqrt`` for ``SqrtBackward0``."""
        return (
            (self.node.partition("Backward")[0].lower() or self.node)
            if self.node and not self.own_function
            else self.op
        )

    @property
    def operator(self) -> str:
        """What made it, in words."""
        name = "a cast" if self.op == "to_copy" else self.forward_name
        if self.own_function:
            return f"{name} in the backward of {self.own_function}"
        return {"backward": f"the backward of {name}", "optimizer": f"the optimizer's {name}"}.get(
            self.phase, name
        )

    @property
    def kind(self) -> str:
        """How it goes wrong: one of ``KINDS``, ``optimizer``, ``input``, ``product``, or empty."""
        if self.phase in ("optimizer", "input"):
            return self.phase
        if self.ran_away:
            return "product"
        return next(
            (kind for kind, names in KINDS.items() if self.made and self.forward_name in names), ""
        )

    @property
    def ran_away(self) -> bool:
        """Whether it is a product with weights that had grown so large step by step, over the layers or
        the turns of a recurrence.
        """
        largest = max(
            (max(abs(each.low or 0.0), abs(each.high or 0.0)) for each in self.inputs), default=0.0
        )
        return self.phase == "forward" and self.op in PRODUCTS and largest >= RUNAWAY

    @property
    def cause(self) -> str:
        """What its inputs say about why; empty where they say nothing."""
        ranges = [
            (each.low, each.high)
            for each in self.inputs
            if each.low is not None and each.high is not None
        ]
        if not ranges:
            return ""
        (low, high), largest, forward = ranges[0], LARGEST.get(self.dtype), self.phase == "forward"
        if forward and self.op in ("exp", "expm1") and largest is not None:
            return (
                f"its input went up to {high:.4g}, and {self.dtype} overflows at "
                f"{math.log(largest):.1f}"
            )
        if self.op == "to_copy" and largest is not None:
            return (
                f"its input went up to {max(abs(low), abs(high)):.4g}, and {self.dtype} ends at "
                f"{largest:.4g}"
            )
        if forward and self.kind in ("log", "sqrt") and low <= 0:
            return "its input reached 0" if low == 0 else f"its input went down to {low:.4g}"
        by = f" and the constant {self.constants[0]}" if self.constants else ""
        share = max(each.share_nonfinite or 0.0 for each in self.inputs)
        bad = f"; {amounts.percent(share)} of one was not finite" if share else ""
        return (
            f"its inputs went from {min(low for low, _ in ranges):.4g} to "
            f"{max(high for _, high in ranges):.4g}{by}{bad}"
        )

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        named = [
            ("phase", self.phase),
            ("operator", self.op),
            ("autograd node", self.node),
            ("module", self.module),
        ]
        ranges = [(f"input {number}", str(each)) for number, each in enumerate(self.inputs, 1)]
        return *((label, text) for label, text in named if text), *ranges


@dataclass(frozen=True)
class BadTensor:
    """A gradient, a parameter or a buffer that is not finite after a step."""

    what: str
    name: str
    value: str

    def __str__(self) -> str:
        return f"the gradient of {self.name}" if self.what == "gradient" else self.name


@dataclass(frozen=True)
class Nonfinite(Table):
    """The first step after which a gradient or a parameter was not finite, or, where a replay saw
    how, the statistics of a batch norm; ``step`` None where there was none.

    ``step`` counts from 0 since the first step of the run, warm-up included; ``steps`` are all that
    completed. ``replayed`` is true if a replay went bad too: without it ``birth`` is None.
    ``unclipped``: where an optimizer steps, if no gradients were seen to be clipped.
    """

    parts: ClassVar[tuple[str, ...]] = ("nonfinite",)
    of_values: ClassVar[bool] = True
    absent: ClassVar[Mapping[str, str]] = {
        "nonfinite": "no optimizer stepped while the auditor looked, so there "
        "were no parameters to look at"
    }

    step: int | None = None
    steps: int = 0
    tensors: tuple[BadTensor, ...] = ()
    count: int = 0
    birth: Birth | None = None
    replayed: bool = False
    unclipped: Site | None = None

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        first = ("first bad step", f"{self.step} (from 0, warm-up included)")
        return (
            first,
            ("tensors not finite after it", str(self.count)),
            *(self.birth.facts if self.birth is not None else ()),
        )

    @classmethod
    def build(cls, evidence: Evidence) -> Nonfinite:
        """From the recording and from the one of its replay, if there is one."""
        steps = len(evidence.rows(StepRow))
        row = NonfiniteRow.first(rows_of(evidence, NonfiniteRow))
        if row is None:
            return cls(steps=steps)
        of_norms = row.what == "buffer"
        replay = evidence.inside(REPLAY)
        again = NonfiniteRow.first(replay.rows(NonfiniteRow)) if replay is not None else None
        if replay is None or again is None:
            return (
                cls(steps=steps) if of_norms else cls(row.global_step, steps, _tensors(row), row.n)
            )
        birth = next((_birth(replay, each) for each in replay.rows(BirthRow)), None)
        if of_norms and (birth is None or birth.was_there):
            return cls(steps=steps)  # where the norm runs is what is known: NormBufferRow
        return cls(
            again.global_step,
            steps,
            _tensors(again),
            again.n,
            birth,
            replayed=True,
            unclipped=_unclipped(evidence),
        )


def _unclipped(evidence: Evidence) -> Site | None:
    rows = evidence.rows(NormRow) if evidence.has(NormRow.part) else []
    at = next((row.at for row in rows if row.at is not None), None)
    return None if at is None or any(row.clipped for row in rows) else evidence.recording.site(at)


def _tensors(row: NonfiniteRow) -> tuple[BadTensor, ...]:
    return tuple(BadTensor(row.what, each.name, each.value) for each in row.tensors)


def _birth(replay: Evidence, row: BirthRow) -> Birth:
    at = row.at
    return Birth(
        op=row.op,
        phase=row.phase,
        value=row.value,
        step=row.step,
        site=None if at is None else replay.recording.site(at),
        dtype=row.dtype,
        node=row.node,
        module=row.module,
        fill=row.fill,
        constants=tuple(row.constants),
        entered=None if row.entered is None else replay.recording.site(row.entered),
        dataset=row.dataset,
        inputs=tuple(InputRange(i.dtype, i.min, i.max, i.share_nonfinite) for i in row.inputs),
    )
