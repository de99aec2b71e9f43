"""The nouns of the product: frozen data with their own invariants, standard library only."""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from auditor.model import prices
from auditor.model.charts import Layers, Parts, Series
from auditor.model.sections import (
    ByModule,
    Communication,
    Compilation,
    DeviceTime,
    RanOut,
    SavedCheckpoint,
    Verification,
    Verified,
)
from auditor.model.sites import FoundAt as FoundAt
from auditor.model.sites import Site as Site
from auditor.model.what_if import Change, WhatIf

SCHEMA = "audit-report/1"

Basis = Literal["measured", "estimated", "none"]
SeenOn = Literal["cpu", "cuda", "rehearsal", "null", "trace", "snapshot", "source"]
Status = Literal["found", "clean", "skipped", "failed"]
Training = Literal["trained", "forward", "evaluated", "nothing"]
Outcome = Literal["completed", "raised", "oom", "killed", "timeout", "interrupted"]
Action = Literal[
    "set_keyword",
    "drop_keyword",
    "drop_statement",
    "detach",
    "rename_call",
    "throttle",
    "insert_before",
    "insert_after_imports",
    "modernize_amp",
    "set_value",
    "set_constant",
    "make_on_device",
    "decorate",
]


class Severity(enum.StrEnum):
    """How much a finding matters, worst first."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def rank(self) -> int:
        """0 for the worst; sorts findings and decides ``--fail-on``."""
        return list(Severity).index(self)


@dataclass(frozen=True)
class Edit:
    """One change of the user's source, said by its meaning; ``auditor.patch`` finds the exact
    bytes.

    - ``set_keyword``: in the call of ``call`` on the site's line, set ``keyword=value``
    - ``drop_keyword``: in the call of ``call``, remove ``keyword=...``
    - ``drop_statement``: remove the statement that calls ``call``, and what is of no use without it
    - ``detach``: append ``.detach()`` to the value that the site stores or accumulates
    - ``rename_call``: replace the call of ``call`` by the source text ``value`` (same prefix)
    - ``throttle``: run the statement on the site's line, which must only log, every ``value`` steps
    - ``insert_before``: put the call ``value`` (one that ``auditor.patch`` knows) before the
      statement on the line
    - ``insert_after_imports``: put the call ``value`` (likewise) behind the imports at the top of
      the file
    - ``modernize_amp``: call the class of ``torch.amp`` in the place of ``torch.cuda.amp.<call>``
    - ``make_on_device``: ``torch.zeros(n).to(device)`` becomes ``torch.zeros(n, device=device)``;
      ``call`` is the move
    - ``decorate``: put the decorator ``value`` (one that ``auditor.patch`` knows) on the function
      that begins on the line
    - ``set_constant``: on the line that sets the name ``keyword`` to a number or flag
      write ``value`` instead
    - ``set_value``: in a configuration file, set the value at ``keyword`` (a JSON list of keys and
      positions), or in a shell script or ``.env`` the variable ``keyword``, to ``value``

    ``call`` is the last name of the called expression: ``backward`` for ``loss.backward(...)``.
    ``span`` (first and last line, first and last column: 1-based lines, 0-based UTF-8 byte columns,
    as in ``ast``) says which call where the line has several of that name. ``safe`` means that the
    training result cannot change; ``reason`` says why, or why not.
    """

    site: Site
    action: Action
    call: str = ""
    keyword: str = ""
    value: str = ""
    safe: bool = False
    reason: str = ""
    span: tuple[int, int, int, int] | None = None


@dataclass(frozen=True)
class Remedy:
    """What to do about a finding. ``edits`` become ``diff`` once the patcher has proven that they
    apply.

    ``config`` holds environment settings or knobs that are not source:
    ``{"PYTORCH_CUDA_ALLOC_CONF": ...}``.
    """

    text: str
    edits: tuple[Edit, ...] = ()
    config: dict[str, str] | None = None
    diff: str | None = None
    refused: str | None = None

    @property
    def safe(self) -> bool:
        """True when there is at least one edit and every edit is safe."""
        return bool(self.edits) and all(edit.safe for edit in self.edits)


@dataclass(frozen=True)
class Finding:
    """One defect at one statement, with its price.

    ``lost_us_per_step`` and ``lost_bytes`` are what would come back; None if it was not
    measured. ``lost_us_per_step_low`` and ``_high`` are between what the time lies: a measured
    price has them (docs/prices.md says how sure they are), and one whose interval reaches zero is
    not proven. ``grows``: ``lost_bytes`` more are lost on each step. ``basis`` says how the price
    was come by. A rule fills what it knows; the engine adds code, name, severity (unless the rule
    lowers it), ``seen_on`` (the device of the run, unless the rule read something else), key and
    remedy. ``places`` are its parts in the order of lines, empty if there is one.
    ``negligible``: its price is too small to be more than a note (``auditor.model.prices``).
    ``follows`` is the code of the finding of which it is a consequence: it stands behind that one,
    and is in no sum.
    """

    site: Site | None
    message: str
    steps: int = 0
    per_step: float = 0.0
    lost_us_per_step: float | None = None
    lost_us_per_step_low: float | None = None
    lost_us_per_step_high: float | None = None
    lost_bytes: int | None = None
    grows: bool = False
    basis: Basis = "none"
    seen_on: SeenOn | None = None
    severity: Severity | None = None
    facts: tuple[tuple[str, str], ...] = ()
    code: str = ""
    name: str = ""
    key: str = ""
    remedy: Remedy | None = None
    verified: Verified | None = None
    places: tuple[FoundAt, ...] = ()
    negligible: bool = False
    follows: str = ""
    baseline_state: State | None = None
    """Whether it is in the baseline that it was compared with; None if there was none."""
    changes: tuple[Change, ...] = ()
    """What a replay of the trace leaves out to price it; never written to the report."""

    @property
    def codes(self) -> tuple[str, ...]:
        """Codes of all rules that found it, the leading one first."""
        return tuple(
            dict.fromkeys((self.code, *(place.code for place in self.places if place.code)))
        )

    def is_selected(self, select: Collection[str]) -> bool:
        """True if one of its codes or their families is among these; all are where none is."""
        return not select or any(
            code in select or code.rstrip("0123456789") in select for code in self.codes
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of all its parts, its own first: findings that share one are the same."""
        return tuple(dict.fromkeys((self.key, *(place.key for place in self.places if place.key))))

    @property
    def proven_us(self) -> float | None:
        """``lost_us_per_step`` where it is a number above zero, and so is all of its interval; else
        None: it counts in no sum and order.
        """
        lost, low = self.lost_us_per_step, self.lost_us_per_step_low
        return (
            lost
            if lost is not None and 0.0 < lost < math.inf and (low is None or low > 0.0)
            else None
        )


@dataclass(frozen=True)
class Verdict:
    """What one rule said of one recording. ``reason`` is empty only for ``found`` and ``clean``."""

    code: str
    name: str
    status: Status
    reason: str = ""


@dataclass(frozen=True)
class StepTimes:
    """Step time of the quiet pass in us, warm-up left out, and what steps waited for a processor
    taken off.

    ``low`` and ``high`` are between what the median lies (None of too few steps, and in a trace);
    ``queued`` is the share (0 to 1) of the host's time in which steps waited for a processor.
    ``mean`` is what shares are of; None in reports of 0.1.
    """

    median: float
    p95: float
    min: float
    max: float
    n: int
    low: float | None = None
    high: float | None = None
    queued: float = 0.0
    mean: float | None = None


@dataclass(frozen=True)
class PeakBytes:
    """Peak memory in bytes: the device's allocator, and the host process (resident set)."""

    device: int | None = None
    host: int | None = None


@dataclass(frozen=True)
class TargetError:
    """What ended the target early, in which ``step``. ``traceback``: the user's own frames."""

    type: str
    message: str
    traceback: str = ""
    step: int | None = None
    pass_name: str = ""
    site: Site | None = None


@dataclass(frozen=True)
class Run:
    """What was audited, on what, and how it ended.

    ``training``: ``trained`` (a backward or an optimizer ran, or a parameter changed), else
    ``forward`` (autograd graphs were built), ``evaluated`` (torch ran without them) or ``nothing``
    (no operator ran); None if that was not looked at. ``in_process``: the steps were taken in the
    user's own process, so that ``audit verify`` cannot take them again.
    """

    target: str
    steps: int
    warmup: int
    world_size: int
    device: str
    outcome: Outcome
    error: TargetError | None
    step_us: StepTimes | None
    peak_bytes: PeakBytes
    torch: str
    python: str
    recorded_at: str
    training: Training | None = None
    in_process: bool = False


@dataclass(frozen=True)
class Excerpt:
    """Source lines around a site: ``lines[0]`` is line ``first`` of ``file``.

    ``opening`` holds number and text of the lines above that open the function and classes around
    them, outermost first.
    """

    file: str
    first: int
    lines: tuple[str, ...]
    opening: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Rank:
    """One rank of a job, from its own trace. Times are us in each step, of the device with the most
    work.

    ``step_us`` is the median step; ``communication_us`` is time with a collective running,
    ``exposed_us`` the part of it in which no other kernel did; ``wait_us`` is the time that the
    host was held. ``rank`` is None if the trace does not say.
    """

    rank: int | None
    file: str
    host: str
    device: str
    steps: int
    step_us: float
    busy_us: float
    compute_us: float
    communication_us: float
    exposed_us: float
    loader_us: float
    wait_us: float
    peak_bytes: int | None


State = Literal["new", "unchanged"]
"""SARIF's words for a finding that is not in the baseline, and for one that is."""


@dataclass(frozen=True)
class Part:
    """One place of a finding as a baseline knows it: nothing of it changes when lines move.

    ``key`` is rule code, file and a hash of the line's text, as
    :func:`auditor.model.finding_key` makes it.
    """

    key: str
    function: str = ""


@dataclass(frozen=True)
class Accepted:
    """A finding of a baseline. ``target`` is what was run, empty for a trace or a snapshot;
    ``file`` and ``text`` are for people.
    """

    code: str
    target: str
    file: str
    text: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Baseline:
    """How a report compares with a baseline: its ``new`` and ``unchanged`` findings by number.

    ``gone`` are findings of the baseline that do not occur any more. ``unlooked`` counts those
    whose rules could not be checked this time, or were not selected.
    """

    file: str
    new: int
    unchanged: int
    gone: tuple[Accepted, ...] = ()
    unlooked: int = 0


@dataclass(frozen=True)
class Report:
    """The one result: pages and formats are functions of it. Findings in order of price."""

    run: Run
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    """Those of ``warnings`` above the findings: the rest means less than it seems."""
    cautions: tuple[str, ...] = ()
    """Sentences that stand there too, and are no fault: what makes times less certain."""
    tool: dict[str, str] = field(default_factory=dict)
    schema: str = SCHEMA
    environment: dict[str, str] = field(default_factory=dict)
    method: tuple[str, ...] = ()
    series: tuple[Series, ...] = ()
    operators: tuple[tuple[str, int, float], ...] = ()
    """Top operators of traced steps: name, calls and self time in us per step, while profiled."""
    excerpts: dict[str, Excerpt] = field(default_factory=dict)
    """Source around each finding's site, by ``file:line``."""
    manual: dict[str, str] = field(default_factory=dict)
    """Manual page (Markdown) of every rule that fired, by code."""
    ranks: tuple[Rank, ...] = ()
    """The ranks of a job, where its traces were judged together."""
    device_time: DeviceTime | None = None
    """Where the device's time went in the judged trace; None without a trace or a device."""
    compilation: Compilation | None = None
    """What ``torch.compile`` did; None if the program gives nothing to it."""
    by_module: ByModule | None = None
    """Time, memory and operations of each module, and rates; None if no module was watched."""
    communication: Communication | None = None
    """What ranks hold and exchange in a step; None for one process, and if not watched."""
    layers: tuple[Layers, ...] = ()
    """Memory over time, of each device."""
    parts: Parts | None = None
    """What the steps of the trace are made of; None without a trace."""
    what_if: WhatIf | None = None
    """The fixes' joint saving, by a replay of the trace; None if no finding asks for it."""
    ran_out: RanOut | None = None
    """Limit, shortfall and what would fit; None if memory did not run out."""
    checkpoints: tuple[SavedCheckpoint, ...] = ()
    """The checkpoints that were scanned, in their order."""
    verification: Verification | None = None
    """What re-runs with the patches measured; None until ``audit verify``."""
    baseline: Baseline | None = None
    """What a baseline knows of the findings; None if none was given."""
    folder: str = ""
    """Name of the folder that the page is written into, as it knows it again after it was copied."""
    editor_links: dict[str, str] = field(default_factory=dict)
    """What opens a finding's line in an editor, by ``file:line`` here; never in report.json."""
    interactive_figures: bool = False
    """Whether the page holds plotly, which redraws its figures; never in report.json."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "findings", self._ordered())

    def _ordered(self) -> tuple[Finding, ...]:
        return prices.in_order(self.findings, prices.Scale.of(self.run, self.environment))

    def worst(self) -> Severity | None:
        """Severity of the worst finding that is not in the baseline, or None."""
        found = [
            finding.severity
            for finding in self.findings
            if finding.severity is not None and finding.baseline_state != "unchanged"
        ]
        return min(found, key=lambda severity: severity.rank, default=None)


def finding_key(code: str, site: Site | None) -> str:
    """Identity of a finding that survives moved lines: code, file, the line without spacing."""
    if site is None:
        return code
    text = "".join(site.text.split())
    return f"{code}:{site.file}:{hashlib.sha256(text.encode()).hexdigest()[:12]}"
