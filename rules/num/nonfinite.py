"""NUM002, 13 and 15: numbers that stopped being finite: at which step, and where they were born."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from auditor import amounts
from auditor.evidence.checkpoints import Checkpoints
from auditor.evidence.recorded.amp import LARGEST
from auditor.evidence.recorded.load_state_dict import spoiled
from auditor.evidence.source.files import Function, Source, shorten, the_only
from auditor.evidence.table import Evidence, Rows, Table, rows_of
from auditor.model import Finding, FoundAt, Remedy, Severity, Site
from auditor.recordings.schema.data import LoadRow
from auditor.recordings.schema.numerics import BirthRow, NonfiniteRow, NormBufferRow
from auditor.recordings.schema.run import StepRow
from auditor.rule import Rule
from auditor.syntax.index import nodes_in

from ..lines import places_of
from .rows import NormRow

if TYPE_CHECKING:
    from auditor.evidence.scans import TensorFacts


LISTED = 50
"""Tensors that the facts name."""


class WeightsPoisoned(Rule):
    """Weights or optimizer state hold NaN or infinities."""

    code = "NUM013"
    severity = Severity.ERROR
    since = "0.1"
    rehearsed = True
    everywhere = True

    def detect(
        self, nonfinite: Nonfinite, loads: Rows[LoadRow], buffers: Rows[NormBufferRow]
    ) -> Iterator[Finding]:
        birth = nonfinite.birth
        if nonfinite.step is None and (first := next(iter(buffers), None)) is not None:
            yield _spoiled(first)
        if birth is None or not birth.was_there:
            return
        what = "a parameter" if birth.phase == "parameter" else "the optimizer's state"
        used = f", first used at {birth.site}" if birth.site is not None else ""
        tensors = (
            f"; {nonfinite.tensors[0].name} is one of the tensors that it made non-finite"
            if nonfinite.tensors
            else ""
        )
        load = spoiled(loads, optimizer=birth.phase == "state")
        held = f"{what} held {_value(birth.value)} before step {birth.step} began"
        came = f"; {_brought(load)}" if load is not None else ""
        site = birth.site if load is None else load.site
        yield Finding(
            site,
            f"{held}{came}{used}{tensors}",
            steps=1,
            per_step=1 / max(1, nonfinite.steps),
            facts=nonfinite.facts,
            remedy=_remedy("Look at what was loaded before the run: audit checkpoint FILE. ", site),
        )

    def in_checkpoint(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            bad = checkpoint.poisoned
            if not bad:
                continue
            worst = max(
                bad,
                key=lambda tensor: (
                    tensor.tally.nonfinite / tensor.tally.count if tensor.tally else 0.0
                ),
            )
            others = amounts.count(len(bad) - 1, "more tensor")
            more = f", and {others}" if len(bad) > 1 else ""
            yield checkpoint.finding(
                f"{checkpoint.name}: {worst.name} is {_share(worst)}{more} (it holds "
                f"{amounts.count(len(checkpoint.scan.tensors), 'tensor')})",
                *((each.name, _share(each)) for each in bad[:LISTED]),
                remedy=_remedy(checkpoints.instead, None),
            )


def _remedy(first: str, site: Site | None) -> Remedy:
    then = (
        "Do not resume from this file; run the training under `audit run` to find the line that "
        "produced the value."
    )
    return Remedy(f"{first}{then if site is None else ''}".strip())


def _brought(load: LoadRow) -> str:
    more = f" and {amounts.count(load.bad - 1, 'more tensor')}" if load.bad > 1 else ""
    return f"the state that {load.owner} loads here is not finite in {load.tensors[0]}{more}"


def _share(tensor: TensorFacts) -> str:
    tally = tensor.tally
    if tally is None:
        return "unknown"
    counts = (("NaN", tally.nan), ("inf", tally.positive_inf), ("-inf", tally.negative_inf))
    return " and ".join(f"{100 * n / tally.count:.3g}% {name}" for name, n in counts if n)


def _spoiled(found: NormBufferRow) -> Finding:
    return Finding(
        found.site,
        f"{found.buffer} of a {found.owner} that runs here holds {_value(found.value)} by step "
        f"{found.step} of the diagnostic pass, although the weights are finite: the check that protects them comes "
        "after the forward that changed the buffer, and every evaluation from now on is not finite",
        steps=1,
        remedy=_remedy(
            "Check isfinite(batch) before the forward, and compute the statistics again. ",
            found.site,
        ),
    )


class BatchNotFinite(Rule):
    """A batch holds NaN or infinities, and they reach the weights."""

    code = "NUM015"
    severity = Severity.ERROR
    since = "0.1"
    rehearsed = True
    everywhere = True
    advice = (
        "Look for the sample: check isfinite in the dataset or the collate function, and drop "
        "or repair it there."
    )

    def detect(self, nonfinite: Nonfinite, source: Source) -> Iterator[Finding]:
        birth = nonfinite.birth
        if birth is None or not birth.came_with_data:
            return
        bad = birth.inputs[0].share_nonfinite if birth.inputs else None
        share = f" ({bad:.3g} of it)" if bad else ""
        reached = (
            f"after step {nonfinite.step} {nonfinite.tensors[0]} was not finite"
            if nonfinite.tensors
            else ""
        )
        handed = _handed_on(source, birth.dataset) if birth.dataset else None
        path = [] if handed is None else [handed]
        path += [site for site in (birth.entered, birth.site) if site is not None]
        yield Finding(
            path[0] if path else None,
            f"the data of step {birth.step} held {_value(birth.value)}{share} "
            f"{_used(birth, handed)}; {reached}",
            steps=1,
            per_step=1 / max(1, nonfinite.steps),
            facts=nonfinite.facts,
            places=tuple(_places(path)),
        )


def _handed_on(source: Source, dataset: str) -> Site | None:
    """Where a dataset class returns its samples; None unless one line of the program's."""
    return the_only(
        source.site_of(file, node)
        for file, owner in source.every(ast.ClassDef)
        if owner.name == dataset
        for method in owner.body
        if isinstance(method, Function) and method.name in ("__getitem__", "__iter__")
        for node in nodes_in(method, ast.Return, ast.Yield)
        if node.value is not None
    )


def _used(birth: Birth, handed: Site | None) -> str:
    """How it came to the operator that used it first."""
    if handed is not None:
        return f"that the dataset hands on here; first used at {_quoted(birth.site)}"
    if birth.entered in (None, birth.site):
        return "when it was first used here"
    return f"when it went into the model here; first used at {_quoted(birth.site)}"


def _quoted(site: Site | None) -> str:
    return "a line that was not seen" if site is None else f"{site}, `{shorten(site.text)}`"


def _places(path: Sequence[Site]) -> Iterator[FoundAt]:
    sites = list(dict.fromkeys(path))
    return (FoundAt(site, shorten(site.text)) for site in sites if len(sites) > 1)


REMEDIES = {
    "exp": "Limit exp's input: subtract the maximum first, stay "
    "in logarithms (logsumexp, log_softmax), or clamp it.",
    "log": "Keep the logarithm's input above 0: use log_softmax or logsigmoid instead of the log "
    "of a probability, or clamp(min=...) with a number that its dtype can represent.",
    "sqrt": "Add an epsilon inside the root: at 0 its derivative is infinite, below 0 it is NaN.",
    "div": "Keep the divisor away from 0 with an epsilon that its dtype can represent, or "
    "clamp(min=...).",
    "mul": "0 times infinity is NaN: use masked_fill or torch.where "
    "instead of multiplying by an infinity.",
    "softmax": "If every entry of a row is masked, its softmax is NaN: "
    "leave such rows out, or mask with a large finite number.",
    "product": "Clip the gradients between backward and step (clip_grad_norm_), lower the learning "
    "rate, or normalize: over many products in a row, weights a little too large grow without bound.",
    "optimizer": "Lower the learning rate, or clip the gradients: the "
    "update itself left the range of the parameters.",
    "input": "Find the sample: check isfinite in the dataset or the collate function.",
    "": "Check the ranges of the inputs, and limit the one that leaves the range of its dtype.",
}
"""By the kind of the operator that made the value."""


class NonfiniteValueBorn(Rule):
    """A NaN or an infinity appears and reaches the weights."""

    code = "NUM002"
    severity = Severity.ERROR
    since = "0.1"
    rehearsed = True
    everywhere = True

    def detect(self, nonfinite: Nonfinite) -> Iterator[Finding]:
        if nonfinite.step is None:
            return
        birth = nonfinite.birth
        if birth is not None and (birth.came_with_data or birth.was_there):
            return  # NUM015, NUM013
        yield Finding(
            birth.site if birth is not None else None,
            f"{_born(nonfinite)}; {_reached(nonfinite)}",
            steps=1,
            per_step=1 / max(1, nonfinite.steps),
            facts=nonfinite.facts,
            remedy=Remedy(REMEDIES[birth.kind if birth is not None else ""]),
            # with the line of the optimizer's step, where clipping belongs before it
            places=()
            if birth is None or not birth.ran_away
            else places_of(birth.site, nonfinite.unclipped),
        )


# -- what is said ----------------------------------------------------------------------------------


def _born(nonfinite: Nonfinite) -> str:
    birth = nonfinite.birth
    if birth is None:
        again = "" if nonfinite.replayed else " (not seen again in a replay)"
        return f"a non-finite value appeared by step {nonfinite.step}{again}"
    value = _value(birth.value)
    if not birth.made:
        return (
            f"{value} that the program wrote on purpose (a single number or a mask) was first used here "
            f"at step {birth.step}"
        )
    if birth.fill:
        how = "left in memory" if "empty" in birth.op else "written"
        return f"{value} was {how} by {birth.op} at step {birth.step}"
    cause = birth.cause
    return f"{birth.operator} produced {value} at step {birth.step}{f' ({cause})' if cause else ''}"


def _value(value: str) -> str:
    return "NaN" if value == "nan" else value


def _reached(nonfinite: Nonfinite) -> str:
    birth, more = nonfinite.birth, nonfinite.count - 1
    when = (
        "then"
        if birth is not None and birth.step == nonfinite.step
        else f"after step {nonfinite.step}"
    )
    tensors = [f"{tensor} was {_value(tensor.value)}" for tensor in nonfinite.tensors[:1]]
    others = (
        f", and {amounts.count(more, 'more tensor')} {'was' if more == 1 else 'were'} not finite"
    )
    guarded = (
        "; the weights were spared, but evaluation is not finite from then on"
        if any(tensor.what == "buffer" for tensor in nonfinite.tensors)
        else ""
    )
    unclipped = (
        f"; nothing clips the gradients before the optimizer steps at {nonfinite.unclipped}"
        if birth is not None and birth.ran_away and nonfinite.unclipped is not None
        else ""
    )
    return (
        f"{when} {tensors[0] if tensors else 'a tensor was not finite'}"
        f"{others if more else ''}{guarded}{unclipped}"
    )


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
"""Magnitude that only many products in a row reach: its square is about the largest float32."""

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
    the ``input``, a ``parameter`` or optimizer ``state``. ``site`` is None if no line of the
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
        """The user's ``autograd.Function`` whose backward made it: torch numbers its nodes."""
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
        """Whether it is a product with weights that grew step by step, over layers or turns."""
        largest = max(
            (max(abs(each.low or 0.0), abs(each.high or 0.0)) for each in self.inputs), default=0.0
        )
        return self.phase == "forward" and self.op in PRODUCTS and largest >= RUNAWAY

    @property
    def cause(self) -> str:
        """What its inputs say about why; empty if they say nothing."""
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
    how, the statistics of a batch norm; ``step`` None if there was none.

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
        first = ("first bad step", f"{self.step} (counted from 0, warm-up included)")
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
    rows = evidence.rows(NormRow)
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
