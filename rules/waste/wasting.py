"""WASTE: work whose results are not read, and positions that are padding."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace_finding
from statistics import median
from typing import Any, ClassVar

from msgspec.structs import replace

from auditor import amounts
from auditor.evidence.recorded.batches import Batches, Loader
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.source.files import Function, Index, Source, lines_of, the_only
from auditor.evidence.source.loops import loop_around
from auditor.evidence.table import Evidence, Rows, Table
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.schema.graph import ThrownRow
from auditor.recordings.schema.sync import CopyRow
from auditor.rule import NotLooked, Rule, knob
from auditor.syntax.index import LOOPS, called_in, is_ordered, name_of, names_in, nodes_in

from ..lines import places_of
from .rows import DeepCopyRow, EqualCallsRow

PACKED = (
    "pack_padded_sequence",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "unpad_input",
    "flash_attn_varlen_func",
)
"""Calls after which padding takes no part in what is computed."""


LONGEST = "True"
"""Value of a tokenizer's ``padding`` in Transformers for rows as wide as the longest of their batch
(as ``"longest"``: docs of PreTrainedTokenizerBase.__call__, ``padding``).
"""

TRIMMED = (
    "Pad each batch to its longest row (pad_sequence; a tokenizer's padding=True), rounded up to a "
    "multiple of 8 or 64."
)


BOUNDED = (
    "Bound what is computed, the number of rows times the longest of them, and cut batches from rows "
    "of similar length (sorted within some hundred rows, the batches shuffled)."
)

FULL = 0.9
"""Of its bound a batch sampler fills at least half of its batches up to this share."""


@dataclass(frozen=True)
class PaddingComputed(Rule):
    """Much of what the step computes is padding."""

    code = "WASTE006"
    severity = Severity.WARNING
    since = "0.2"
    rehearsed = True
    everywhere = True
    advice = (
        "Batch rows of similar length (a batch sampler that sorts within a few hundred "
        "batches and shuffles these), or pack several rows into one."
    )

    share: float = knob(0.2, "Report if padding by batch saves at least this share of positions.")
    sorted_share: float = knob(0.3, "Report a note if sorted batches save at least this share.")
    fewest: int = knob(3, "Report only if at least this many batches were padded.")

    def detect(self, batches: Batches, source: Source) -> Iterator[Finding]:
        batches.need_a_loader()
        if any(source.first_call(name) is not None for name in PACKED):
            return
        for loader in batches.loaders:
            taken = [each for each in batches.loud if each.loader == loader.number]
            texts = [one for each in taken for one in each.texts or () if len(one) > 1]
            many = sum(each.n for each in taken)
            if self.fewest <= len(texts) and 2 * len(texts) > many:
                yield from self._wasted(loader, texts, len(taken), source)

    def _wasted(
        self, loader: Loader, texts: list[list[int]], steps: int, source: Source
    ) -> Iterator[Finding]:
        lengths = [length for _, *rows in texts for length in rows]
        positions = sum(width * len(rows) for width, *rows in texts)
        longest = sum(max(rows) * len(rows) for _, *rows in texts)
        padding = (positions - sum(lengths)) / positions
        trimmed = (positions - longest) / positions
        alike = (positions - _sorted_positions(texts)) / positions
        fixed = trimmed >= self.share
        if not fixed and alike < self.sorted_share:
            return
        saved = trimmed if fixed else alike
        way = "padding to each batch's longest row" if fixed else "batches of similar length"
        cut, counted = _cut_at(source, loader.batches_at), "" if fixed else _counted(texts)
        order = (cut, loader.made_at)  # what is changed: the order, or the width
        yield Finding(
            next(filter(None, (loader.collate_at, *order) if fixed else order), loader.consumed_at),
            f"{amounts.percent(padding)} of the positions in a batch are padding (rows of "
            f"length {min(lengths):,} to {max(lengths):,}, padded to {_widths(texts)}); {way} would save "
            f"{amounts.percent(saved)} of the positions" + counted,
            steps=steps,
            per_step=len(texts) / steps,
            places=() if fixed else places_of(*order),
            # another width is another graph, and another order another training
            severity=None if fixed and source.first_call("compile") is None else Severity.NOTE,
            remedy=Remedy(TRIMMED, tuple(_asked(source, loader.collate_at)))
            if fixed
            else Remedy(BOUNDED)
            if counted
            else None,
        )


def _counted(texts: Sequence[list[int]]) -> str:
    """What batches of different numbers of rows are filled up to: the sum of the lengths, where most
    come near their largest, and few do when padded.
    """
    sums = [sum(rows) for _, *rows in texts]
    padded = [width * len(rows) for width, *rows in texts]
    same = len({len(each) for each in texts}) == 1
    if same or median(sums) < FULL * max(sums) or median(padded) >= FULL * max(padded):
        return ""
    return (
        f"; the lengths in a batch add up to {max(sums):,} at most, but padded it holds up to "
        f"{max(padded):,} positions (median {round(median(padded)):,})"
    )


def _cut_at(source: Source, begins: Site | None) -> Site | None:
    """Of the class whose ``__iter__`` begins there: the comparison by which a batch is full, else
    the first line that yields one.
    """
    if begins is None:
        return None
    index = source.index(begins.file)
    cls = max(index.on(begins.line, ast.ClassDef), key=_line, default=None)
    if cls is None:
        return begins
    tests = (
        node
        for node in nodes_in(cls, ast.If, ast.While)
        if is_ordered(node.test)
        and index.nearest(node, *LOOPS) is not None
        and any(nodes_in(part, ast.Yield) or "append" in called_in(part) for part in node.body)
    )
    yields = nodes_in(cls, ast.Yield, ast.YieldFrom)
    found = min(tests, default=None, key=_line) or min(yields, default=None, key=_line)
    return begins if found is None else source.site_of(begins.file, found)


def _line(node: ast.expr | ast.stmt) -> int:
    return node.lineno


def _asked(source: Source, collate: Site | None) -> Iterator[Edit]:
    """Of the only collate call given ``padding="max_length"``: others may see single rows."""
    if collate is None:
        return
    place = collate.file, collate.line
    found = the_only(
        node
        for file, function in source.functions
        if (file, function.lineno) == place
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        for item in node.keywords
        if item.arg == "padding"
        and isinstance(item.value, ast.Constant)
        and item.value.value == "max_length"
    )
    if found is not None:
        site, call = source.site_of(collate.file, found), name_of(found.func)
        reason = "batches get other widths: if a mask is missing, results change"
        yield Edit(site, "set_keyword", call, "padding", LONGEST, reason=reason)


def _sorted_positions(texts: Sequence[list[int]]) -> int:
    """Positions of the same rows, in batches of the same sizes, by length."""
    lengths = sorted((length for _, *rows in texts for length in rows), reverse=True)
    positions = begin = 0
    for _, *rows in texts:
        positions += lengths[begin] * len(rows)
        begin += len(rows)
    return positions


def _widths(texts: Sequence[list[int]]) -> str:
    low, high = min(texts)[0], max(texts)[0]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


class WasteRule(Rule):
    """Base of the WASTE rules."""

    @staticmethod
    def report(
        thrown: ThrownWork, each: ThrownRow, machine: Machine, message: str, **more: Any
    ) -> Finding:
        """A finding about a line, priced by its share of the step's time if timed."""
        us = None if thrown.us is None or machine.device != "cpu" else thrown.us * each.share
        facts = (
            ("operators per step", amounts.digits(each.operators)),
            ("share of the step's work", amounts.percent(each.share)),
            *more.pop("facts", ()),
        )
        return Finding(
            each.own,
            message,
            steps=each.steps,
            per_step=1.0,
            lost_us_per_step=us,
            basis="none" if us is None else "estimated",
            facts=facts,
            **more,
        )


def worth(each: ThrownRow) -> str:
    """``12 operators, 3% of the step's work``."""
    number = round(each.operators)
    return (
        f"{amounts.count(number, 'operator')} per step, {amounts.percent(each.share)} of its work"
    )


def also(sites: tuple[Site, ...]) -> tuple[tuple[str, str], ...]:
    """Further lines, as a fact."""
    return (("also", ", ".join(str(site) for site in sites)),) if sites else ()


NAMED = 3
"""Parameters that the message names; the rest are counted."""

REMEDIES = {
    "gradient": "Keep the backward out of them: requires_grad_(False) on their module before the "
    "forward and requires_grad_(True) after the backward, or "
    "backward(inputs=list(other.parameters())).",
    "detach": "End the graph here: pass x.detach() instead of x, or compute x under "
    "torch.no_grad() if nothing else needs its graph.",
}


@dataclass(frozen=True)
class GradientsClearedUnread(WasteRule):
    """Gradients are computed that no optimizer reads."""

    code = "WASTE001"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.01, "Report if it is at least this share of the step's work.")

    def detect(self, thrown: ThrownWork, machine: Machine) -> Iterator[Finding]:
        for each in thrown.of("gradient", "detach"):
            if each.share >= self.share:
                yield self.report(
                    thrown, each, machine, _message(each), remedy=Remedy(REMEDIES[each.what])
                )


def _message(each: ThrownRow) -> str:
    names = amounts.some(filter(None, each.names), NAMED, each.n)
    whose = f"{each.n} parameters of {each.owner} ({names})"
    if each.what == "detach":
        return (
            f"through this call the backward at {each.before} continues into {whose}, whose gradients "
            f"are cleared before any optimizer reads them: {worth(each)}"
        )
    return (
        f"the gradients that this backward computes for {whose} are cleared before any optimizer "
        f"reads them: {worth(each)}"
    )


WRITES = frozenset({"copy", "fill", "zero"})
"""Operators that leave something in a tensor which may be kept to be read later."""


IN_PLACE = frozenset(
    "abs add addcdiv addcmul clamp clamp_max clamp_min div exp index_add index_copy index_fill lerp "
    "masked_fill masked_scatter mul neg pow relu scatter scatter_add sigmoid sqrt sub tanh".split()
)
"""Operators that a tensor also has in place, under the name with ``_``."""


WRITTEN = (
    "Write into the tensor itself (state[name].mul_(decay).add_(value, alpha=1 - decay)) under "
    "torch.no_grad(), or call load_state_dict() with the dictionary."
)

LOOKS = frozenset({"items", "keys", "values"})
"""Methods by which a loop goes over a dictionary."""


SOMETIMES = " on the watched steps, though a branch does on others"
"""Addition for results that a branch reads which ran on no watched step."""


@dataclass(frozen=True)
class ResultUnread(WasteRule):
    """A result is computed and never read."""

    code = "WASTE002"
    severity = Severity.WARNING
    since = "0.1"
    advice = "Remove it, or compute it only on the steps that use it (inside the `if` that logs)."

    share: float = knob(0.02, "Report if it is at least this share of the step's work.")
    operators: float = knob(0.01, "Report a note from this share of a step's operators on, too.")
    several: int = knob(3, "Report that note only for at least this many operators.")

    def detect(self, thrown: ThrownWork, machine: Machine, source: Source) -> Iterator[Finding]:
        several = max(self.several, self.operators * thrown.operators)
        for each in thrown.of("result"):
            sites = (each.own, *each.others)
            little = each.share < self.share
            ran_at = each.before or each.own
            if each.op in IN_PLACE and source.stands_alone(ran_at, each.op):
                said = f"the result of {each.op}() is discarded, so the tensor never changes"
                remedy = Remedy(f"Call {each.op}_(), which changes it, or use the result.")
                found = self.report(thrown, each, machine, said, remedy=remedy)
                # what is wrong is the training, whatever the call costs
                yield replace_finding(found, site=ran_at, lost_us_per_step=None, basis="none")
                continue
            lost = _changes_no_parameter(source, ran_at)
            if lost:
                said = f"what is computed here changes no parameter: {lost}, which nothing reads"
                found = self.report(thrown, each, machine, said, remedy=Remedy(WRITTEN))
                yield replace_finding(found, site=ran_at, lost_us_per_step=None, basis="none")
                continue
            enough = thrown.operators and each.operators >= several and each.op not in WRITES
            if little and not enough:
                continue
            if any(handed_on(source, site) for site in sites):
                continue
            sometimes = any(read_on_some_steps(source, site) for site in sites)
            yield self.report(
                thrown,
                each,
                machine,
                f"nothing reads the results of this line{SOMETIMES * sometimes} (most of its work: "
                f"`{each.op.partition(',')[0]}`): {worth(each)}",
                facts=also(each.others),
                severity=Severity.NOTE if little or sometimes else None,
            )


@dataclass(frozen=True)
class CopiedUnread(WasteRule):
    """Data is copied and never read."""

    code = "WASTE003"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    advice = "Move only what the step reads, and leave the rest on the host."

    share: float = knob(0.05, "Report at least this share of the bytes a step copies to a device.")
    size: int = knob(1 << 20, "Report a deep copy of at least this many bytes of data.")

    def detect(
        self, thrown: ThrownWork, machine: Machine, source: Source, *, deep: Rows[DeepCopyRow]
    ) -> Iterator[Finding]:
        copies = [each for each in deep if each.bytes >= max(self.size, each.state)]
        if machine.device == "cpu" and not copies:
            raise NotLooked("on a CPU nothing is moved to a device")
        for row in copies:  # the program may want all of the copy
            yield Finding(
                row.site,
                f"this deep copy of {row.name} takes {amounts.duration(row.us / row.n)}: beside "
                f"{amounts.size(row.state)} of modules it copies {amounts.size(row.bytes)} of other "
                "data",
                severity=Severity.NOTE,
                steps=row.all,
                per_step=row.n / row.all,
                lost_us_per_step=row.us / row.all,
                basis="estimated",
                remedy=Remedy("Copy only what is needed: the module, or its state_dict()."),
            )
        for each in thrown.of("copy"):
            share, at = each.nbytes / max(1, thrown.copied), each.own
            # a library that moves whole batches has readers of its own, on some steps
            moved_here = at.file not in source.texts or source.moves_at(at.file, at.line)
            if share < self.share or not moved_here:
                continue
            sometimes = read_on_some_steps(source, at)
            yield Finding(
                each.own,
                f"{each.op} is moved to the device on each step and nothing reads it"
                f"{SOMETIMES * sometimes}: {amounts.size(each.nbytes)} per step, "
                f"{amounts.percent(share)} of what is moved",
                severity=Severity.NOTE if sometimes else None,
                remedy=Remedy("Move it inside the branch that reads it.") if sometimes else None,
                steps=each.steps,
                per_step=each.operators,
            )


@dataclass(frozen=True)
class RebuiltEachStep(WasteRule):
    """A tensor that never changes is rebuilt on every step."""

    code = "WASTE004"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        'Build it once: self.register_buffer("name", tensor, persistent=False) in __init__ '
        "(with the largest size, then sliced), or a cache by size."
    )

    share: float = knob(0.01, "Report if it is at least this share of the step's work.")
    operators: int = knob(3, "Report small tables of at least this many operators per step.")
    least: int = knob(1 << 12, "Report only if at least this many bytes are built per step.")
    size: int = knob(1 << 18, "Report fewer operators if they build at least this many bytes.")

    def detect(self, thrown: ThrownWork, machine: Machine) -> Iterator[Finding]:
        for each in thrown.of("constant"):
            many = each.operators >= self.operators and each.nbytes >= self.least
            if each.share < self.share or not (many or each.nbytes >= self.size):
                continue
            if any(site.place in thrown.copied_from for site in (each.own, *each.others)):
                continue
            yield self.report(
                thrown,
                each,
                machine,
                f"each step rebuilds the same {amounts.size(each.nbytes)}, from nothing "
                f"that changes: {worth(each)}",
                facts=also(each.others),
            )


@dataclass(frozen=True)
class ComputedTwice(WasteRule):
    """The same thing is computed twice in a step."""

    code = "WASTE005"
    severity = Severity.WARNING
    since = "0.1"
    advice = "Keep the first result in a variable and use it again, detached for metrics."

    share: float = knob(0.02, "Report if it is at least this share of the step's work.")
    size: int = knob(1 << 20, "Without a matrix product, report at least this many bytes per step.")
    again: float = knob(0.2, "Report equal calls from this share of the time without gradients on.")

    def detect(
        self, thrown: ThrownWork, machine: Machine, source: Source, *, equal: Rows[EqualCallsRow]
    ) -> Iterator[Finding]:
        yield from self._equal(equal, machine, source)
        for each in thrown.of("repeat", "again"):
            if each.share < self.share or not (each.products or each.nbytes >= self.size):
                continue
            where = "" if each.before is None else f" at {each.before}"
            yield self.report(
                thrown,
                each,
                machine,
                f"this line computes what is computed{where} as well, from the same tensors: "
                f"{worth(each)}",
                severity=Severity.NOTE if each.what == "again" else None,
            )

    def _equal(
        self, rows: Rows[EqualCallsRow], machine: Machine, source: Source
    ) -> Iterator[Finding]:
        """At the line in the loop; what one line calls is one finding."""
        for site, calls in _in_loops(rows, source).items():
            most = max(calls, key=lambda each: each.us)
            us = sum(each.us for each in calls)
            if us < self.again * most.block_us:
                continue
            called = most.site_of(most.lines[-1])
            where = "" if called is None or called.place == site.place else f" (at {called})"
            timed = machine.device == "cpu"
            yield Finding(
                site,
                f"without gradients this line calls {most.module}{where} {most.n:,} times in one "
                f"step on equal input: all {most.looked} results that were compared are equal bit by bit",
                steps=most.all,
                per_step=most.n * most.steps / most.all,
                lost_us_per_step=us * most.steps / most.all if timed else None,
                basis="estimated" if timed else "none",
                facts=(("steps with such calls", f"{most.steps:,} of {most.all:,}"),),
                remedy=Remedy(
                    f"Call {most.module} once before the loop, and use its result in each turn."
                ),
            )


def _in_loops(rows: Rows[EqualCallsRow], source: Source) -> dict[Site, list[EqualCallsRow]]:
    """The calls by the innermost line around them that is in a loop."""
    found: dict[Site, list[EqualCallsRow]] = {}
    for row in rows:
        sites = [each for line in reversed(row.lines) if (each := row.site_of(line)) is not None]
        looped = (each for each in sites if loop_around(source, each) is not None)
        site = next(looped, sites[0] if sites else None)
        if site is not None:
            found.setdefault(site, []).append(row)
    return found


# -- thrown work -----------------------------------------------------------------------------------

REHEARSAL = "rehearsal"

TRAINING = frozenset({"backward", "manual_backward", "zero_grad"})
"""Calls by which a function is known that takes a training step and returns to its caller."""


@dataclass(frozen=True)
class ThrownWork(Table):
    """What the pass ``numbers`` saw; ``us`` of a step is the timing pass's median."""

    parts: ClassVar[tuple[str, ...]] = ("thrown",)

    found: tuple[ThrownRow, ...] = ()
    copied: int = 0
    """Bytes that were copied to the device per step."""
    us: float | None = None
    operators: float = 0.0
    """Of a step, in all."""
    copied_from: frozenset[tuple[str, int]] = field(default_factory=frozenset)
    """Lines that copy to the device in the rehearsal: other rules tell of these."""

    @classmethod
    def build(cls, evidence: Evidence) -> ThrownWork:
        rows = evidence.get(Rows[ThrownRow])
        whole = next((row for row in rows if row.what == "all"), None)
        if whole is None:
            raise NotLooked("the precision pass was not finished")
        if whole.blind:
            raise NotLooked(whole.blind)
        if not whole.trained:
            raise NotLooked("no optimizer stepped in the precision pass")
        found = [row for row in rows if row.at is not None]
        quiet = own_times(evidence.get(Steps).quiet) if evidence.has("steps") else ()
        return cls(
            tuple(_by_line(found)),
            whole.nbytes,
            median(quiet) if quiet else None,
            whole.operators,
            frozenset(_copies(evidence)),
        )

    def of(self, *what: str) -> Iterator[ThrownRow]:
        """Rows of these kinds."""
        return (each for each in self.found if each.what in what)


def handed_on(source: Source, site: Site) -> bool:
    """True if the statement names what the training function returns: its caller may read it."""
    function = source.index(site.file).scope_at(site.line)
    if not isinstance(function, Function) or not called_in(function) & TRAINING:
        return False
    returns = list(nodes_in(function, ast.Return, ast.Yield))
    if any(site.line in lines_of(node) for node in returns):
        return True
    assigns = list(nodes_in(function, ast.Assign, ast.AugAssign))
    handed = names_in((node for node in assigns if site.line in lines_of(node)), ast.Store)
    grown = -1
    while grown != len(handed):
        grown = len(handed)
        for node in assigns:
            if names_in(node.value, ast.Load) & handed:
                handed |= names_in(node, ast.Store)
    return bool(names_in(returns, ast.Load) & handed)


def _changes_no_parameter(source: Source, site: Site) -> str:
    """Where the statement leaves what it computes of parameters: in a dictionary of ``state_dict()``
    that goes nowhere, or under a loop's name for a parameter. Empty if it does neither.
    """
    index = source.index(site.file)
    scope = index.scope_at(site.line)
    for node in index.on(site.line, ast.Assign) if isinstance(scope, Function) else ():
        target = node.targets[0]
        if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            name = target.value.id
            makes = (each for each in nodes_in(scope or (), ast.Assign) if name in _names_of(each))
            uses = (each for each in nodes_in(scope or (), ast.Name) if each.id == name)
            stays = all(_stays(use, index) for use in uses)
            if stays and any("state_dict" in called_in(each.value) for each in makes):
                return f"it is put into {name}, a dictionary of state_dict()"
        loop = index.nearest(node, ast.For)
        if isinstance(target, ast.Name) and loop is not None and target.id in names_in(node.value):
            over = {"parameters", "named_parameters"} & called_in(loop.iter)
            if over and target.id in names_in(loop.target) and not read_on_some_steps(source, site):
                return f"the loop's name {target.id} is given another tensor"
    return ""


def _names_of(node: ast.Assign) -> set[str]:
    return {each.id for each in node.targets if isinstance(each, ast.Name)}


def _stays(use: ast.Name, index: Index) -> bool:
    """It is no more than made, indexed, or gone over."""
    up = index.parents[use]
    if isinstance(up, ast.Attribute):
        return up.attr in LOOKS
    inside = isinstance(up, ast.Subscript) and up.value is use
    return inside or isinstance(use.ctx, ast.Store) or (isinstance(up, ast.For) and up.iter is use)


def read_on_some_steps(source: Source, site: Site) -> bool:
    """True if the statement gives a name to what a branch reads that is taken on some steps, as in
    ``if step % 100 == 0``: the steps that were watched may lie between these.
    """
    scope = source.index(site.file).scope_at(site.line)
    if scope is None:
        return False
    assigns = [
        node for node in nodes_in(scope, ast.Assign, ast.AnnAssign) if site.line in lines_of(node)
    ]
    named = names_in(assigns, ast.Store)
    counted = names_in((loop.target for loop in nodes_in(scope, ast.For)), ast.Store)
    counted |= names_in(nodes_in(scope, ast.AugAssign), ast.Store)
    return any(
        names_in(branch.body, ast.Load) & named and _changes(branch.test, counted)
        for branch in nodes_in(scope, ast.If)
        if site.line not in lines_of(branch)
    )


def _changes(test: ast.expr, counted: set[str]) -> bool:
    """Whether a condition differs by step, as it seems: a remainder, counter, order or function."""
    remainder = any(isinstance(each.op, ast.Mod) for each in nodes_in(test, ast.BinOp))
    asked = called_in(test) - {"isinstance", "hasattr", "getattr", "len"}
    return is_ordered(test) or remainder or bool(asked) or bool(names_in(test, ast.Load) & counted)


def _by_line(rows: list[ThrownRow]) -> Iterator[ThrownRow]:
    """Several expressions of one line are one; but each table that it builds is its own."""
    kinds: dict[tuple[object, ...], list[ThrownRow]] = {}
    for number, row in enumerate(rows):
        owner = number if row.what == "constant" else row.owner
        kinds.setdefault((row.what, row.own.place, owner), []).append(row)
    for same in kinds.values():
        most = max(same, key=lambda row: row.share)
        yield replace(
            most,
            operators=sum(row.operators for row in same),
            share=sum(row.share for row in same),
            nbytes=sum(row.nbytes for row in same),
            op=", ".join(dict.fromkeys(row.op for row in same)),
            n=sum(row.n for row in same),
            products=sum(row.products for row in same),
            lines=[at for row in same for at in row.lines],
        ).read_from(most.home)


def _copies(evidence: Evidence) -> Iterator[tuple[str, int]]:
    rehearsed = evidence.inside(REHEARSAL)
    if rehearsed is not None and rehearsed.has(CopyRow.part):
        for row in rehearsed.rows(CopyRow):
            site = rehearsed.recording.site(row.at)
            yield site.file, site.line
