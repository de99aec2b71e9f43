"""MEM003: memory grows step over step, on the device or on the host."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, Self

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.retained_graphs import RetainedGraphs, grows
from auditor.evidence.recorded.step_pattern import Trend
from auditor.evidence.snapshot.state_at import NeverFreed
from auditor.evidence.source.files import Function, Index, Source, name_of, unparsed
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Finding, Remedy, Severity, Site
from auditor.recordings.schema.sync import GrowingRow, KeptRow, WorkerKeptRow
from auditor.rule import NotLooked, Rule, knob, see
from auditor.syntax.index import COMPREHENSIONS, LOOPS, nodes_in

from ..lines import places_of
from ..reading import whole
from .segments import DeviceMemory, HostMemory

# -- bounds ----------------------------------------------------------------------------------------
# Which of the user's containers some line cuts, empties or starts again.

CUTS = frozenset(
    """
    cache_clear clear pop popitem popleft remove truncate resize_ rotate discard
    """.split()
)
"""Methods that take something out of a container."""

JOINS = frozenset("cat concat concatenate stack hstack vstack dstack pad".split())
"""Functions of torch whose result holds all that they were given."""

ONCE = frozenset(("main", "__init__", "__post_init__", "setup", "build"))
"""Functions that run once, whoever calls them."""


class Bounds:
    """By the last name of the expression: ``history`` of ``self.history[name]``."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._cut: dict[str, frozenset[_Cut]] = {}
        self._single: dict[str, bool] = {}

    def cut(
        self, file: str, name: str, *, once: bool = True, made: bool = True, items: bool = True
    ) -> bool:
        """Whether a line of the file cuts what is called so (``self.seen[*]``), or, where it is an
        attribute, a line of any recorded file. Without ``once``, what it begins with does not count:
        a tensor, which has no limit. Without ``made``, neither does a value that is no part of
        another one; without ``items``, neither does one that is put in by its key.
        """
        if file not in self._source.texts:
            return True  # it cannot be told
        variable = name.split("[", 1)[0]
        files = self._source.texts if "." in variable else (file,)
        last = re.split(r"\W+", variable)[-1]
        return any(
            each.name == last
            and (once or not each.once)
            and (made or not each.made)
            and (items or not each.item)
            for one in files
            for each in self._of(one)
        )

    def joined(self, name: str) -> Site | None:
        """A line that runs more than once and joins all that is in a container of this name: the
        outputs of an epoch, if it is ever emptied.
        """
        last = re.split(r"\W+", name.split("[", 1)[0])[-1]
        return next(
            (
                self._source.site_of(file, call)
                for file, call in self._source.calls_of(*JOINS)
                for part in nodes_in(call, ast.Name, ast.Attribute)
                if _last(part) == last
                and not _is_picked(self._source.index(file), part)
                and not self._once(self._source.index(file), call)
            ),
            None,
        )

    def _of(self, file: str) -> frozenset[_Cut]:
        if file not in self._cut:
            index = self._source.index(file)
            found = (each for node in index.nodes for each in self._cuts(index, node))
            self._cut[file] = frozenset(found)
        return self._cut[file]

    def _cuts(self, index: Index, node: ast.AST) -> Iterator[_Cut]:
        if isinstance(node, ast.Delete):
            yield from (_Cut(_last(target)) for target in node.targets)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            item = node.func.attr == "setdefault"
            if item or node.func.attr in CUTS:
                yield _Cut(_last(node.func.value), item=item)
        elif isinstance(node, ast.Compare):
            yield from _measured(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            once = self._once(index, node)
            for target, value in _given(node):
                if value is None or not _longer(target, value):
                    yield from _assigned(target, value, once=once)

    def _once(self, index: Index, node: ast.AST, inside: tuple[str, ...] = ()) -> bool:
        """Whether it runs a single time: in no loop, and in no function but such as run once."""
        for up in index.up(node):
            if isinstance(up, (*LOOPS, *COMPREHENSIONS, ast.Lambda)):
                return False
            if isinstance(up, Function):
                return up.name in ONCE or self._called_once(up.name, inside)
        return True

    def _called_once(self, name: str, inside: tuple[str, ...]) -> bool:
        """Whether nothing is done with what is called so but one call that runs a single time."""
        if name not in self._single:
            indices = [self._source.index(file) for file in self._source.texts]
            uses = [(index, use) for index in indices for use in index.named.get(name, ())]
            index, use = uses[0] if len(uses) == 1 else (None, None)
            call = index.parents[use] if index is not None and use is not None else None
            self._single[name] = (
                index is not None
                and isinstance(call, ast.Call)
                and call.func is use
                and name not in inside
                and self._once(index, call, (*inside, name))
            )
        return self._single[name]


class _Cut(NamedTuple):
    """A last name that some line cuts; ``once`` where it begins it a single time with what has a
    limit, ``made`` where it assigns no part of something, ``item`` where it puts in by a key.
    """

    name: str
    once: bool = False
    made: bool = False
    item: bool = False


def _given(node: ast.Assign | ast.AnnAssign) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Each target and its value, those of ``a, b = x, y`` one by one."""
    value = node.value
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        if (
            isinstance(target, ast.Tuple)
            and isinstance(value, ast.Tuple)
            and len(target.elts) == len(value.elts)
        ):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def _assigned(target: ast.expr, value: ast.expr | None, *, once: bool) -> Iterator[_Cut]:
    made = not isinstance(value, ast.Subscript)
    for each in nodes_in(target, ast.Subscript, ast.Name, ast.Attribute):
        if isinstance(each, ast.Subscript):
            yield _Cut(_last(each), made=made, item=True)
        elif isinstance(each.ctx, ast.Store) and (not once or _has_a_limit(value)):
            yield _Cut(_last(each), once=once, made=made)


def _is_picked(index: Index, node: ast.AST) -> bool:
    """``losses[-100:]``, ``outputs[-1]``: a part of it by its place; else it is called, or measured."""
    up = index.parents[node]
    if isinstance(up, ast.Subscript) and up.value is node:
        return isinstance(up.slice, (ast.Slice, ast.UnaryOp, ast.Constant)) and not isinstance(
            getattr(up.slice, "value", None), str
        )
    return isinstance(up, ast.Call) and (up.func is node or name_of(up.func) == "len")


def _measured(node: ast.Compare) -> Iterator[_Cut]:
    """``if len(seen) < 100``: it grows up to there."""
    if any(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in node.ops):
        for each in (node.left, *node.comparators):
            if isinstance(each, ast.Call) and _last(each.func) == "len" and each.args:
                yield _Cut(_last(each.args[0]))


def _longer(target: ast.expr, value: ast.expr) -> bool:
    """``seen = seen + [x]``, ``bank = torch.cat([bank, x])``: all of it, and more."""
    value, name = whole(value), unparsed(target)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        return name in (unparsed(value.left), unparsed(value.right))
    if not isinstance(value, ast.Call) or name_of(value.func) not in JOINS:
        return False
    parts = (
        part for arg in value.args for part in nodes_in(arg, ast.Name, ast.Attribute, ast.Subscript)
    )
    return name in map(unparsed, parts)


def _has_a_limit(value: ast.expr | None) -> bool:
    """``deque(maxlen=100)``, ``LRUCache(100)``: nothing but the plain containers has none."""
    if isinstance(value, ast.Call):
        return not (
            _last(value.func) in ("list", "dict", "set", "defaultdict", "OrderedDict", "Counter")
            or (_last(value.func) == "deque" and len(value.args) < 2 and not value.keywords)
        )
    return not isinstance(
        value, (ast.List, ast.Dict, ast.ListComp, ast.DictComp, ast.Set, ast.Tuple, type(None))
    )


def _formed(source: Source, site: Site | None) -> Site | None:
    """Where the function gives its value to the name by which this line stores: ``cache[key] = x``."""
    if site is None or site.file not in source.texts:
        return None
    index = source.index(site.file)
    keys = {
        target.slice.id
        for node in index.on(site.line, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Name)
    }
    scope = index.scope_at(site.line)
    found = nodes_in(scope, ast.Assign) if isinstance(scope, Function) else ()
    before = (each for each in found if each.lineno < site.line and _names(each.targets) & keys)
    last = max(before, key=lambda each: each.lineno, default=None)
    return None if last is None else source.site_of(site.file, last)


def _names(targets: list[ast.expr]) -> set[str]:
    return {each.id for each in targets if isinstance(each, ast.Name)}


def _last(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return name_of(node)


# -- kept tensors ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Keeper:
    """A variable and what it held at the end of each step. ``site`` is the line that fills it, None
    if it was not found. ``bounded``: some line cuts it, or assigns it again; ``cut`` the same, but
    of a larger tensor a value that is no part of another one is not known to be shorter.
    """

    name: str
    site: Site | None
    tensors: tuple[int, ...]
    nbytes: tuple[int, ...]
    devices: tuple[str, ...] = ()
    bounded: bool = False
    cut: bool = False
    kind: str = "tensors"
    again: WorkerKeptRow | None = None
    """It is a dataset's, and samples that are fetched again are stored again: no cache of them."""
    formed: Site | None = None
    """Where the key is formed by which the line stores them."""
    joined: Site | None = None
    """A line that joins all of it, again and again."""

    @property
    def larger(self) -> bool:
        """It holds no more tensors, but larger ones."""
        return self.tensors[-1] <= self.tensors[0]

    @property
    def cycled(self) -> bool:
        """``itertools.cycle`` keeps what it gave, and gives the same again."""
        return self.site is not None and re.search(r"\bcycle\(", self.site.text) is not None

    @property
    def trend(self) -> Trend:
        """Its bytes."""
        return Trend(tuple(map(float, self.nbytes)))


@dataclass(frozen=True)
class KeptTensors(Table):
    """Such variables of the loud pass, the one that grew most first."""

    parts: ClassVar[tuple[str, ...]] = ("kept",)

    kind: ClassVar[type[GrowingRow]] = KeptRow

    keepers: tuple[Keeper, ...] = ()

    @classmethod
    def without_parts(cls, evidence: Evidence) -> Self:
        """Older recordings lack the part."""
        return cls()

    @classmethod
    def build(cls, evidence: Evidence) -> Self:
        bounds = Bounds(evidence.get(Source))
        keepers = [
            _keeper(evidence, row, bounds)
            for row in rows_of(evidence, cls.kind)
            if row.pass_name == "loud" and len(row.tensors) == len(row.nbytes)
        ]
        return cls(tuple(sorted(keepers, key=lambda each: -each.trend.total)))

    def growing(self, share: float, *, device: bool) -> Iterator[Keeper]:
        """Those that hold more on ``share`` of the steps, never let go, and whose line is known."""
        return (
            each
            for each in self.keepers
            if each.site is not None
            and grows(each.nbytes if each.larger else each.tensors, share)
            and ({"cpu"} != set(each.devices)) is device
        )


class KeptByWorkers(KeptTensors):
    """The same of containers in the worker processes of a loader."""

    parts: ClassVar[tuple[str, ...]] = ("worker_kept",)
    kind: ClassVar[type[GrowingRow]] = WorkerKeptRow


def _keeper(evidence: Evidence, row: GrowingRow, bounds: Bounds) -> Keeper:
    name = f"{row.name}{row.path}"
    site = evidence.recording.site_at(row.file, row.line, row.function) if row.line else None
    file = site.file if site is not None else row.file
    found = Keeper(
        name,
        site,
        tuple(row.tensors),
        tuple(row.nbytes),
        tuple(row.devices),
        kind=row.kind,
        again=row if isinstance(row, WorkerKeptRow) and row.beyond else None,
    )
    if found.again is not None:
        cut = bounds.cut(file, name, items=False)
        return replace(found, formed=_formed(evidence.get(Source), site), bounded=cut, cut=cut)
    once = not found.larger
    lists = found.kind == "tensors" and not (found.larger or found.cycled)
    return replace(
        found,
        joined=bounds.joined(name) if lists else None,
        bounded=not found.cycled and bounds.cut(file, name, once=once),
        cut=not found.cycled and bounds.cut(file, name, once=once, made=once),
    )


MIB = 2**20

SHARE_OF_PEAK = 0.01
"""Less growth of a device's memory over the pass says nothing (Scalene's figure)."""

EVEN = 0.25
"""Where sizes vary, a leak's median step adds at least this share of the growth per step."""

OF_EPOCHS = 4
"""A list that some line joins again and again is an epoch's, and told from a part of the size."""

RETURNED = 0.2
"""And gives back as much as a quarter; a leak gives back nothing."""

REMEDIES = {
    "device": "Look for tensors kept from step to step: logged outputs, lists of losses, caches "
    "without a bound.",
    "host": "Look for containers that grow: logged arrays, cached batches, histories. Bound them or "
    "write them out.",
}


@dataclass(frozen=True)
class _Place:
    """A place of growth and its speed; ``keeper`` if a variable was seen to hold it."""

    rate: float
    trend: Trend = field(default_factory=Trend)
    site: Site | None = None
    said: str = ""
    keeper: Keeper | None = None
    allocated: Site | None = None

    @property
    def may_end(self) -> bool:
        """A line cuts the variable, or a list in host memory may be meant to end with the run."""
        each = self.keeper
        if each is None:
            return False
        grows = each.larger or each.cycled or {"cpu"} != set(each.devices)
        return each.bounded or not (grows or each.again)


@dataclass(frozen=True)
class MemoryGrowsEveryStep(Rule):
    """Memory grows step over step."""

    code = "MEM003"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    rises: float = knob(0.7, "Report only if at least this share of the steps adds memory.")
    tail: float = knob(
        0.2, "Report only if the last third has at least this share of the growth (0.33 if steady)."
    )
    device_mib: float = knob(1.0, "Report only if the device grows by at least this many MiB.")
    host_mib: float = knob(32.0, "Report only if the host grows by at least this many MiB.")
    variable_kib: float = knob(
        2.0, "Report a variable from this many KiB per step on: 100,000 steps of 2 KiB are 200 MiB."
    )

    def detect(
        self,
        device: DeviceMemory,
        host: HostMemory,
        held: RetainedGraphs,
        kept: NeverFreed,
        *,
        keepers: KeptTensors,
        workers: KeptByWorkers,
        machine: Machine,
    ) -> Iterator[Finding]:
        if not device.trend.values and not host.trend.values:
            raise NotLooked("the memory of no step was measured")
        names = ", ".join(sorted({root.name for root in held.roots if root.bytes_per_step()}))
        cause = f"; {names} retains graphs{see('GRAPH001')}" if names else ""
        for where, place, basis in (
            ("device", self._on_device(device.trend, kept, keepers), machine.bytes_basis),
            (
                "host",
                self._on_host(host.trend, keepers, measured=not machine.simulated),
                "measured",
            ),
            ("host", self._in_workers(workers), "estimated"),  # all items as large as the newest
        ):
            if place is None:
                continue
            cycled = place.keeper is not None and place.keeper.cycled  # for one epoch
            note = names or place.may_end or (machine.simulated and place.keeper is None)
            yield Finding(
                place.site,
                f"{where} memory grows by {amounts.size(place.rate)} per step{place.said}{cause}"
                + ("" if where == "device" or cycled else _full(host, place.rate)),
                steps=len(place.trend.values),
                per_step=1.0,
                lost_bytes=round(place.rate),
                grows=True,
                basis=basis,
                severity=Severity.NOTE if note else None,  # GRAPH001 is the warning, with the line
                facts=place.trend.facts,
                places=places_of(place.site, place.allocated),
                remedy=_remedy(where, place.keeper),
                follows="GRAPH001" if names else "",
            )

    def tells_growth(self, size: float) -> bool:
        return size >= self.host_mib * MIB

    def _on_device(self, trend: Trend, kept: NeverFreed, keepers: KeptTensors) -> _Place | None:
        """The variable that holds half of it, else the line whose blocks stay."""
        floor = max(self.device_mib * MIB, SHARE_OF_PEAK * trend.peak)
        rate = self._rate(trend, floor)
        made = kept.lines[0].site if kept.lines else None
        keeper = self._keeper(keepers, rate, device=True)
        if keeper is not None:
            return _kept_by(keeper, rate, trend, None if keeper.larger else made)
        if rate is None:
            return None
        if kept.lines:
            said = f": {kept.lines[0].blocks:,} blocks allocated here were never freed"
            return _Place(rate, trend, made, said)
        return _Place(rate, trend)

    def _on_host(self, trend: Trend, keepers: KeptTensors, *, measured: bool) -> _Place | None:
        """A variable is counted; the resident set tells of other growth, where tensors that are
        played do not lie in it.
        """
        rate = self._rate(trend, self.host_mib * MIB) if measured else None
        keeper = self._keeper(keepers, rate, device=False)
        if keeper is not None:
            return _kept_by(keeper, rate, trend)
        if rate is None or trend.returned > RETURNED or trend.evenness < EVEN:
            return None
        return _Place(rate, trend)

    def _in_workers(self, workers: KeptByWorkers) -> _Place | None:
        """A container that the dataset has in each worker: no part of this process's memory."""
        keeper = self._keeper(workers, None, device=False)
        if keeper is None:
            return None
        place, row = _kept_by(keeper, None, Trend()), keeper.again
        said = place.said
        if row is not None and row.fetched:
            said += f", and {row.stored:,} of {row.fetched:,} samples that were fetched again were "
            said += "stored again: the key holds more than the sample's number"
        said += "; each worker process holds its own" if row is None or row.workers else ""
        return replace(place, said=said, allocated=keeper.formed)

    def _keeper(self, keepers: KeptTensors, rate: float | None, *, device: bool) -> Keeper | None:
        """The variable that holds half of the growth, else a growing one that no line cuts."""
        found = list(keepers.growing(self.rises, device=device))
        for each in found:
            own = self._rate(each.trend, 0.0)
            if rate is not None and own is not None and own >= rate / 2:
                return each
        for each in sorted(found, key=lambda each: not each.larger):
            own = self._rate(each.trend, 0.0)
            least = self.variable_kib * 1024 / (1 if each.joined is None else OF_EPOCHS)
            if not (each.cut or own is None) and own >= least:
                return each
        return None

    def _rate(self, trend: Trend, floor: float) -> float | None:
        """Growth in bytes per step; None if it is not established."""
        slope = trend.slope
        if slope is None or slope.low <= 0 or trend.total < floor:
            return None
        if trend.noise > slope.per_step * len(trend.values):
            return None  # it comes and goes by more than it grew
        return (
            slope.per_step if trend.rises >= self.rises and trend.last_third >= self.tail else None
        )


def _kept_by(each: Keeper, rate: float | None, trend: Trend, made: Site | None = None) -> _Place:
    more = f"a larger {each.kind[:-1]}" if each.larger else f"more {each.kind}"
    if each.cycled:
        said = ": itertools.cycle keeps every batch of the first epoch and repeats them after it"
    else:
        said = f": on each step this line stores {more} in {each.name}"
        said += "" if each.bounded else ", which nothing ever shrinks"
        if each.joined is not None and not each.bounded:
            said += f": line {each.joined.line} joins those of all steps so far, not of one epoch"
    slope = each.trend.slope
    if rate is None and slope is not None:
        rate, trend = slope.per_step, each.trend
    return _Place(rate or 0.0, trend, each.site, said, each, made)


def _remedy(where: str, keeper: Keeper | None) -> Remedy:
    if keeper is None:
        return Remedy(REMEDIES[where])
    if keeper.cycled:
        return Remedy(
            "Start the loader again for each epoch, which also shuffles it again: a generator with "
            "`while True: yield from loader` keeps nothing."
        )
    if keeper.larger:
        return Remedy(
            f"Limit {keeper.name}: allocate it once and write each step's part into the next rows "
            "(a ring buffer), or keep only the last rows after each step."
        )
    if keeper.again is not None and keeper.again.fetched:
        return Remedy(
            "Cache the decoded sample under its number alone, and crop or augment it after the lookup."
        )
    tensors = keeper.kind == "tensors"
    by_key = keeper.site is not None and re.search(r"\]\s*=[^=]|setdefault\(", keeper.site.text)
    bound = "remove its oldest keys" if by_key else "collections.deque(maxlen=...)"
    if keeper.site is not None and re.search(r"^\s*@.*cache|lru_cache\(", keeper.site.text):
        bound = "functools.lru_cache(maxsize=...)"
    return Remedy(
        f"Limit {keeper.name} ({bound}, or clear it after use), "
        + ("or keep plain numbers instead of tensors." if tensors else "or write it to a file.")
    )


def _full(host: HostMemory, rate: float) -> str:
    """When the host is full at this rate, as far as its memory is known."""
    values = host.trend.values
    room = host.usable - (values[-1] if values else 0.0)
    if room <= 0:
        return ""
    steps = float(f"{room / rate:.2g}")
    return f"; the host's {amounts.size(host.usable)} would be full after {steps:,.0f} more steps at this rate"
