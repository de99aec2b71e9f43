"""Tensor values that the host read in the step, told apart by what the line does with them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any, ClassVar, Literal

from auditor import amounts
from auditor.evidence.recorded.lines import Line, Lines
from auditor.evidence.recorded.machine import Device, device_of
from auditor.evidence.recorded.step_pattern import StepPattern
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.files import Source, Span, Statements, name_of, shorten, span_at
from auditor.evidence.table import Evidence, Table, by_line
from auditor.model import FoundAt, Site
from auditor.model.devices import DeviceInfo, device_named
from auditor.recordings.schema.sync import ReadRow
from auditor.rule import NotLooked

NO_DEVICE = "waits for values are recorded on a GPU and in a rehearsal of the GPU path, and this run has none"

LEADS: tuple[Act, ...] = ("branch", "scalar", "transfer", "shape")
"""What a line is reported as when it does several things, strongest first."""

STRETCH = 0.1
"""Share of the steps' time between the first and the last read of a burst from which the host waits
for work between them; a log reads what is finished, one value after the other.
"""

KEYWORD = re.compile(r"^(if|elif|while|assert)\s+")
# Within one expression a read may happen inside another (print reads items, unique copies): the
# outer one is the line's.
NESTING = ("print", "tolist", "numpy", "to_cpu", "cpu")

# Reads that belong to torch's own machinery: the protocol of GradScaler, optimizers' host-side step
# counters, and what runs inside the backward pass (anomaly mode's checks; NUM009 reports those).
MACHINERY = (
    "torch/amp/",
    "torch/cuda/amp/",
    "torch/autograd/",
    "torch/optim/",
    "torch/utils/data/",
)


ExpressionKey = tuple[str, int, str, Span | None, str]
"""Which expression: file, line, bytecode instruction, span, and a framework's function."""

Act = Literal["branch", "scalar", "transfer", "shape"]

TRANSFERS = frozenset({"cpu", "numpy", "tolist", "to_cpu", "print"})
SHAPES = frozenset(
    {
        "nonzero",
        "masked_select",
        "mask_index",
        "mask_put",
        "unique",
        "bincount",
        "repeat_interleave",
    }
)

# Names of CPython's instructions that ask an object for its truth, 3.11 to 3.13 (which compares and
# asks in one: a comparison of tensors by itself reads nothing).
TRUTH_OPCODES = ("POP_JUMP", "JUMP_IF_", "UNARY_NOT", "TO_BOOL", "CONTAINS_OP", "COMPARE_OP")
# Builtins that ask their arguments, or comparisons of them, for their truth.
TRUTH_CALLS = frozenset({"bool", "any", "all", "max", "min", "sorted", "filter"})
# Calls that read a number in so many words.
SCALAR_CALLS = frozenset(
    {"item", "float", "int", "tolist", "complex", "round", "isnan", "isinf", "isfinite"}
)

# Python parts of a tensor's own methods: not a library that reads behind the user's back.
GLUE = (
    "torch/_tensor.py",
    "torch/_tensor_str.py",
    "torch/functional.py",
    "torch/_jit_internal.py",
    "torch/_ops.py",
    "torch/overrides.py",
)


@dataclass(frozen=True)
class Expression:
    """The reading expression: its instruction, a library's function between, place and text."""

    opcode: str = ""
    via: str = ""
    span: Span | None = None
    text: str = ""


def library_of(via: str) -> str:
    """The library function worth naming; empty for the glue under a tensor's own methods."""
    return "" if via.startswith(GLUE) else via


def framework_of(via: str) -> str:
    """The library function, unless torch's: inside a framework's loop reads are very different."""
    return "" if via.startswith("torch/") else via


def act_of(kind: str, expression: Expression, site: Site, source: Source) -> Act:
    """What a read of ``kind`` by ``expression`` is for."""
    if kind in TRANSFERS or expression.via.startswith("torch/_tensor_str.py"):
        return "transfer"
    if kind in SHAPES:
        return "shape"
    if kind != "item" or library_of(expression.via):
        return "scalar"
    return "branch" if _asks_truth(expression, site, source) else "scalar"


def _asks_truth(expression: Expression, site: Site, source: Source) -> bool:
    if expression.opcode.startswith(TRUTH_OPCODES):
        return True
    node = source.node_at(site.file, expression.span) if expression.span is not None else None
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in TRUTH_CALLS
    if node is not None or (expression.opcode and "CALL" not in expression.opcode):
        return False
    # without columns (``-X no_debug_ranges``)
    called = {name_of(call.func) for call in source.calls_at(site)}
    if called & SCALAR_CALLS:
        return False
    return bool(called & TRUTH_CALLS) or source.test_at(site)


@dataclass(frozen=True)
class Read:
    """Reads of one kind by one expression in one step, and what for."""

    row: ReadRow
    act: Act
    expression: Expression = field(default_factory=Expression)

    @property
    def site(self) -> Site:
        """Its line."""
        return self.row.site

    @property
    def kind(self) -> str:
        """As the row has it, but for what torch reads to print a tensor."""
        return "print" if self.expression.via.startswith("torch/_tensor_str.py") else self.row.kind

    @cached_property
    def key(self) -> ExpressionKey:
        """The expression, whatever function of torch was under it."""
        expression = self.expression
        return (*self.site.place, expression.opcode, expression.span, framework_of(expression.via))


@dataclass(frozen=True)
class ReadStatement(Line[ReadRow]):
    """Lines of one statement of the user's that read tensors and are reported alike, and everything
    they read that counts.

    ``site`` is the first of them, ``reads`` are in the order of the source. ``step_us`` are the
    times of all steps.
    """

    act: Act = "scalar"
    reads: tuple[Read, ...] = ()
    device: Device = "cpu"
    step_us: tuple[float, ...] = ()

    @cached_property
    def pattern(self) -> StepPattern:
        """On which steps it reads; in phases, where these go through work of the step's."""
        counted = super().pattern
        spans: dict[int, float] = {}
        for row in self.rows:
            spans[row.step] = max(spans.get(row.step, 0.0), row.span_us)
        worked = STRETCH * counted.mean(enumerate(self.step_us))
        return counted if counted.mean(spans.items()) > worked else replace(counted, times=())

    @property
    def per_step(self) -> float:
        """Reads of the leading act in each audited step, on average."""
        return self._times(self._leading)

    @property
    def found_at(self) -> tuple[FoundAt, ...]:
        """What it reads, expression by expression."""
        parts: dict[ExpressionKey, list[Read]] = {}
        for read in self.reads:
            parts.setdefault(read.key, []).append(read)
        return tuple(map(self._part, parts.values()))

    def _part(self, reads: list[Read]) -> FoundAt:
        held = self._held(reads) if self.on.timed and self.steps else None
        return FoundAt(reads[0].site, _written(reads), self._times(reads), held)

    def _times(self, reads: Iterable[Read]) -> float:
        return self.pattern.mean((read.row.step, read.row.n) for read in reads)

    def _held(self, reads: Iterable[Read]) -> float:
        return self.pattern.mean((read.row.step, read.row.us) for read in reads)

    @property
    def on(self) -> DeviceInfo:
        """The device that the host would wait for."""
        return device_named(self.device)

    @property
    def held_us(self) -> float | None:
        """Us per step (loud pass) in which the host was held; None without a device."""
        return self._held(self.reads) if self.on.timed and self.steps else None

    @property
    def text(self) -> str:
        """The reading expression as written (shortened), else the line."""
        return _written(self._leading)

    @property
    def library(self) -> str:
        """The library function that reads on the line's behalf; empty if the line itself reads."""
        names = {library_of(read.expression.via) for read in self._leading}
        return "" if "" in names else ", ".join(sorted(names))

    @property
    def told(self) -> dict[str, Any]:
        """How long the host was held as its price, and where it reads."""
        held = self.held_us
        basis = "none" if held is None else "estimated"
        return {"basis": basis, "lost_us_per_step": held, "places": self.found_at}

    def waits(self, subject: str) -> str:
        """What ``subject`` does to the host, and on which steps."""
        makes = "makes" if self.on.timed else "would make"
        return f"{subject} {makes} the host wait for the GPU on {self.pattern}"

    @property
    def checks(self) -> bool:
        """Whether it reads nothing but whether a function of torch.linalg worked."""
        return all(read.kind == "check" for read in self._leading)

    @property
    def through(self) -> str:
        """``, in torch/nn/...:function``: which library reads, and how often of several."""
        if ", " not in self.library:
            return f" (inside {self.library})" if self.library else ""
        reads = [(library_of(read.expression.via), read) for read in self._leading]
        often = (
            (name, self._times(read for by, read in reads if by == name))
            for name in self.library.split(", ")
        )
        counted = sorted(often, key=lambda each: -each[1])
        return (
            f" (inside {', '.join(f'{name} {amounts.digits(n)} per step' for name, n in counted)})"
        )

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        kinds = ", ".join(sorted({read.kind for read in self.reads}))
        facts = [("operation", kinds)]
        if self.library:
            facts.append(("reads inside", self.library))
        if self.held_us is not None:
            facts.append(
                ("host held", f"{amounts.duration(self.held_us)} per step (diagnostic pass)")
            )
        return tuple(facts)

    @property
    def _leading(self) -> tuple[Read, ...]:
        return tuple(read for read in self.reads if read.act == self.act)


@dataclass(frozen=True)
class Reads(Table):
    """All reads of the loud pass, of a GPU's or of a rehearsal's."""

    parts: ClassVar[tuple[str, ...]] = ("reads", "steps")
    absent: ClassVar[Mapping[str, str]] = {"reads": NO_DEVICE}
    of_rehearsals: ClassVar[bool] = True

    device: Device = "cpu"
    steps: int = 0
    rows: tuple[Read, ...] = ()
    statements: Statements = field(default_factory=Statements)
    step_us: tuple[float, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> Reads:
        """From the loud pass."""
        if not evidence.recording.device.accelerator:
            raise NotLooked(NO_DEVICE)
        source = evidence.get(Source)
        made = cache(partial(_expression, evidence, source))
        rows = evidence.get(Lines[ReadRow])
        return cls(
            device_of(evidence),
            rows.steps,
            tuple(Read(row, *made(row.at, row.kind)) for row in rows),
            Statements(evidence.recording.source),
            tuple(step.us for step in evidence.get(Steps).loud),
        )

    def clips(self) -> Iterator[ReadStatement]:
        """Lines that clip gradients by a function which reads their norm."""
        clips = (
            read for read in self.rows if read.row.lib != "loader" and _is_clip(read.expression.via)
        )
        for reads in by_line(clips):
            yield self._place(reads[0].act, reads)

    def places(self, act: Act) -> Iterator[ReadStatement]:
        """Statements to report as ``act``, by file and line: each line leads with one act only."""
        return (place for place in self.all_places if place.act == act)

    def counts(self, read: Read) -> bool:
        """True if the read is the line's own doing."""
        via = read.expression.via
        return not (read.row.lib == "loader" or _is_machinery(via) or _is_clip(via))

    @cached_property
    def all_places(self) -> tuple[ReadStatement, ...]:
        """Statements with lines to be reported, in the order of file and line."""
        counted = _outermost([read for read in self.rows if self.counts(read)])
        counted.sort(key=_by_place)
        together: dict[tuple[str, int, Act], list[Read]] = {}
        for reads in by_line(counted):
            site = reads[0].site
            statement = site.file, self.statements.lines(site).start, _leading(reads)
            together.setdefault(statement, []).extend(reads)
        return tuple(self._place(key[-1], reads) for key, reads in together.items())

    def _place(self, act: Act, reads: list[Read]) -> ReadStatement:
        return ReadStatement(
            reads[0].site,
            tuple(read.row for read in reads),
            self.steps,
            act=act,
            reads=tuple(reads),
            device=self.device,
            step_us=self.step_us,
        )


def _leading(reads: list[Read]) -> Act:
    # what the line itself does comes first
    own = [read for read in reads if not library_of(read.expression.via)]
    acts = {read.act for read in own or reads}
    return next(act for act in LEADS if act in acts)


def _written(reads: Iterable[Read]) -> str:
    found = tuple(reads)
    written = next((read.expression.text for read in found if read.expression.text), "")
    return shorten(written or KEYWORD.sub("", found[0].site.text).rstrip(":"))


def _by_place(read: Read) -> tuple[str, int, int, int]:
    span = read.expression.span
    return (*read.site.place, *((span.line, span.col) if span is not None else (0, 0)))


def _is_machinery(via: str) -> bool:
    return via.startswith(MACHINERY) and not via.startswith("torch/optim/lr_scheduler.py")


def _is_clip(via: str) -> bool:
    return via.startswith("torch/nn/utils/clip_grad.py")


def _outermost(reads: list[Read]) -> list[Read]:
    """Without the reads that another read of the same expression contains."""
    best: dict[ExpressionKey, int] = {}
    for read in reads:
        best[read.key] = min(best.get(read.key, len(NESTING) + 1), _depth(read))
    apart = NESTING.index("tolist")
    return [
        read
        for read in reads
        if _depth(read) == best[read.key]
        # a framework's function has lines of its own: what one copies does not contain what one reads
        or (read.kind == "item" and best[read.key] > apart and framework_of(read.expression.via))
    ]


def _depth(read: Read) -> int:
    if read.kind in NESTING:
        return NESTING.index(read.kind)
    return len(NESTING) + (read.kind == "item")


def _expression(evidence: Evidence, source: Source, at: int, kind: str) -> tuple[Act, Expression]:
    where, site = evidence.recording.site_row(at), evidence.recording.site(at)
    span = span_at(where)
    expression = Expression(
        opcode=where.opcode or "",
        via=where.via or "",
        span=span,
        text=source.excerpt(site.file, span) if span is not None else "",
    )
    return act_of(kind, expression, site, source), expression
