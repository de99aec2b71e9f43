"""GRAPH003, 5, 6 and 8 to 11: graphs that no backward walks, parameters that get no gradient,
graphs for several losses, and gradients that torch warns are not there.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import starmap
from typing import ClassVar

from auditor import amounts
from auditor.evidence.source.files import Source, name_of, the_only, unparsed
from auditor.evidence.source.loops import evaluating
from auditor.evidence.table import Rows, together
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.schema.graph import CensusRow, FedRow
from auditor.rule import Rule, knob

from ..census import CensusSays
from ..lines import places_of
from ..torch_says import TorchSays
from .chosen import OPTIMIZERS, choosing
from .rows import EvalRow, StrayRow, SummedRow


class GradOfNonLeaf(TorchSays):
    """The gradient of a tensor that is no leaf is read."""

    code = "GRAPH009"
    severity = Severity.NOTE
    warning = "grad of non-leaf"
    defect = "reads .grad of a tensor that is the result of an operation: it is None"
    advice = (
        "Call retain_grad() on it before the backward, or read .grad of the leaf: .to(), "
        ".cuda() and arithmetic create a new tensor."
    )


class TensorMadeOfATensor(TorchSays):
    """torch.tensor() is given a tensor."""

    code = "GRAPH010"
    severity = Severity.NOTE
    warning = "tensor of tensor"
    defect = "torch.tensor() of a tensor copies it and cuts its graph: no gradient passes"
    advice = "Use the tensor itself, or tensor.detach().clone() for a copy without a graph."


def for_nobody(
    graphs: Iterable[EvalRow], leaves: Iterable[StrayRow], calls: int
) -> Iterator[EvalRow]:
    """Lines with this many calls whose graphs a backward walks to give gradients to parameters
    alone that no optimizer holds and whose gradients nothing reads: a teacher, or an average of
    weights that the program changes itself.
    """
    known = {leaf.name: leaf for leaf in leaves if leaf.registered and not leaf.known}
    for each in graphs:
        if each.n < calls or not each.walked or each.fed or each.mode == "trained":
            continue
        own = [known[name] for name in each.parameters if name in known]
        if own and (each.mode == "eval" or any(leaf.changed for leaf in own)):
            yield each


CUTS = {
    "detach": "detach() cuts the graph here",
    "argmax": "no gradient comes back through this argmax()",
    "multinomial": "no gradient comes back through this multinomial()",
    "no_grad": "their module runs only under the no_grad() of this line",
    "checkpoint": "this reentrant checkpoint() gives them no gradient, since none of its inputs requires one",
}
NAMED = 3
"""Parameters that the message names; the rest are counted."""

REMEDIES = {
    "unfed": "Find what cuts the graph: a detach(), .data, no_grad() or argmax on the way to the "
    "loss, or a module that the forward never calls. If it is intended, set requires_grad_(False) "
    "and leave the parameter out of the optimizer.",
    "orphaned": "Create the optimizer after the last change of the model's layers, or give it the "
    "new parameters there (add_param_group()), if these are those of layers that were replaced: no "
    "module holds them. Else find what cuts the graph, such as a detach().",
    "unrun": "Put the module where its forward is called. A parent may read .weight itself, as "
    "nn.MultiheadAttention does of out_proj. If it is intended, leave the parameters out of the "
    "optimizer.",
    "checkpoint": "Pass use_reentrant=False to checkpoint(), or call requires_grad_() on its input.",
    "still": "Check the schedule: it ended, or the group was created "
    "with lr=0. If it is intended, freeze the parameters, whose gradients nothing uses.",
}


@dataclass(frozen=True)
class ParametersNeverTrained(Rule):
    """Parameters of the optimizer never change."""

    code = "GRAPH005"
    severity = Severity.WARNING
    since = "0.1"

    fewest: int = knob(8, "Report only after this many optimizer steps of the pass.")

    def detect(self, fed: Rows[FedRow], source: Source) -> Iterator[Finding]:
        for stepped in fed:
            if stepped.steps < self.fewest:
                continue
            if stepped.n:
                kind = "checkpoint" if stepped.cut == "checkpoint" else "unfed"
                if {each.name.split(" ")[0] for each in stepped.unfed} == {"group"}:
                    kind = "orphaned"  # they have the names of no module
                elif stepped.put_at is not None:
                    kind = "unrun"
                put = stepped.put_from if kind == "orphaned" else stepped.put_at
                places = (put, stepped.cut_at, stepped.called_at, stepped.at)
                data = _read_as_data(source, stepped) if places[:2] == (None, None) else None
                site = data or next(filter(None, map(stepped.site_of, places)), None)
                finding = _finding(stepped, site, kind, _unfed(stepped, data, kind))
                also = map(stepped.site_of, (stepped.put_at, *stepped.detached))
                yield replace(finding, places=places_of(site, *also))
            for each in stepped.still:
                said = (
                    f"{stepped.optimizer} stepped its group {each.group} ({each.parameters} "
                    f"parameters) with a rate of 0 on all of {stepped.steps} steps"
                )
                yield _finding(stepped, stepped.site, "still", said)


WRITTEN = re.compile(r"\.(data|detach\(\))(\.\w+_\(|(\[[^=]*\])?\s*[-+*/]?=[^=])")
"""What changes the values of a parameter: most of these lines initialize it."""


def _read_as_data(source: Source, stepped: FedRow) -> Site | None:
    """The only line that reads the values of such a parameter without its graph."""
    tails = (each.name.split(".")[-2:] for each in stepped.unfed)
    ends = tuple(f".{'.'.join(tail)}" for tail in tails if len(tail) == 2)
    return the_only(
        site
        for file, node in source.every(ast.Attribute)
        if node.attr in ("data", "detach") and unparsed(node.value).endswith(ends)
        if not WRITTEN.search((site := source.site_of(file, node)).text)
    )


def _unfed(stepped: FedRow, data: Site | None, kind: str) -> str:
    names = amounts.some((each.name for each in stepped.unfed), NAMED, stepped.n)
    ran = (
        "; this line reads its values without the graph"
        if data is not None
        else "; this line puts their module in another's place, where nothing calls its forward"
        if kind == "unrun"
        else "; this line puts others in their place"
        if stepped.put_at is not None
        else f"; {CUTS[stepped.cut]}"
        if stepped.cut_at is not None
        else f"; {stepped.called or 'the module that holds them'} runs here, and no gradient comes "
        "back to it"
        if stepped.called_at is not None
        else ""
    )
    return (
        f"{stepped.n} of {stepped.parameters} parameters of {stepped.optimizer} had no gradient in "
        f"any of {stepped.steps} steps: {names}{ran}"
    )


def _finding(stepped: FedRow, site: Site | None, kind: str, said: str) -> Finding:
    facts = (
        tuple((each.name, f"shape {each.shape}") for each in stepped.unfed)
        if kind != "still"
        else ()
    )
    remedy = Remedy(REMEDIES[kind])
    return Finding(site, said, steps=stepped.steps, per_step=1.0, facts=facts, remedy=remedy)


TEACHING = 3
"""Calls from which GRAPH003 speaks of a module in evaluation mode."""

LEFT_OUT = {
    "parameters": "Check which parameters the optimizer is given: a filter or a group may leave "
    "them out, and those that are made or unfrozen later need add_param_group(). If they should "
    "not change, use requires_grad_(False): then no gradient is computed and kept for them.",
    "hidden": "Keep them in nn.ModuleList (nn.ModuleDict for a dictionary): then parameters(), "
    "state_dict() and .to(device) see them.",
    "tensor": "Make it an nn.Parameter of a module and pass it to the "
    "optimizer; or drop requires_grad if it is a constant.",
    "result": "Make the nn.Parameter last, of what is converted already: nn.Parameter(x.float()).",
    "unregistered": "Make it an nn.Parameter of a module, or save and move "
    "it yourself beside the model.",
}


@dataclass(frozen=True)
class TrainableTensorLeftOut(Rule):
    """A tensor gets gradients, but no optimizer holds it."""

    code = "GRAPH006"
    severity = Severity.WARNING
    since = "0.1"

    fewest: int = knob(8, "Report only if it got a gradient on at least this many steps.")

    def detect(
        self, strays: Rows[StrayRow], fed: Rows[FedRow], evaluations: Rows[EvalRow], source: Source
    ) -> Iterator[Finding]:
        if not len(fed):  # gradients are looked at for their own sake
            return
        # a teacher's: GRAPH003 names the line that records their graph
        taught = {
            name for place in for_nobody(evaluations, strays, TEACHING) for name in place.parameters
        }
        often = [each for each in strays if each.fed >= self.fewest]
        unchanged = [each for each in often if not each.optimized and each.changed is False]
        forgotten = [each for each in unchanged if each.registered and each.name not in taught]
        for found in together(forgotten, lambda each: str(each.made or each.site)):
            kind = "parameters" if found[0].made is None else "hidden"
            finding, put = _left_out(found, kind), found[0].site_of(found[0].put_from)
            chosen: list[Site | None] = []
            if kind == "parameters" and put is None:
                put = _optimizer(source, fed)
                chosen = [*choosing(source, put)] if put is not None and found[0].partly else []
            # the last of the lists has to take what the others leave
            inside = found[0].site_of(found[0].put_at)
            put, places = (chosen or [put])[-1], places_of(*chosen, put, inside)
            yield finding if put is None else replace(finding, site=put, places=places)
        for each in unchanged:
            if not each.registered and not each.known:
                yield _left_out([each], "result" if each.result_of else "tensor")
        for each in often:
            if each.optimized and not each.registered and each.beside:
                yield _left_out([each], "unregistered")


def _left_out(strays: Sequence[StrayRow], kind: str) -> Finding:
    first, held = strays[0], sum(each.grad_bytes for each in strays)
    return Finding(
        first.made or first.site,
        _describe_strays(strays, kind),
        steps=first.fed,
        per_step=1.0,
        severity=Severity.NOTE if kind == "unregistered" else None,
        facts=(
            ("gradients held", amounts.size(held)),
            *((each.name or "a tensor", f"shape {each.shape}") for each in strays[:20]),
        ),
        remedy=Remedy(LEFT_OUT[kind]),
    )


def _optimizer(source: Source, fed: Iterable[FedRow]) -> Site | None:
    """Where the optimizer is made: the only one, or the only one by the name that steps."""
    made = starmap(source.site_of, source.calls_of(*OPTIMIZERS))
    lines = [row.site.text for row in fed if row.site is not None]
    named = (
        source.site_of(file, node.value)
        for file, node in source.every(ast.Assign)
        if isinstance(node.value, ast.Call) and name_of(node.value.func) in OPTIMIZERS
        for target in node.targets
        if any(f"{unparsed(target)}.step(" in line for line in lines)
    )
    return the_only(made) or the_only(named)


def _describe_strays(strays: Sequence[StrayRow], kind: str) -> str:
    name = strays[0].name or f"a tensor of shape {strays[0].shape}"
    if kind in ("parameters", "hidden"):
        names = amounts.some((each.name for each in strays), NAMED)
        where = (
            ", since parameters() does not see modules in a plain list, tuple or dictionary"
            if kind == "hidden"
            else ""
        )
        gets, them = (
            ("changes: it gets", "it") if len(strays) == 1 else ("change: they get", "them")
        )
        return (
            f"{amounts.count(len(strays), 'parameter')} never {gets} gradients (on "
            f"{strays[0].fed} steps), and no optimizer holds {them}{where}: {names}"
        )
    if kind == "result":
        of = "an nn.Parameter" if strays[0].result_of == "Parameter" else "a tensor"
        return (
            f"{name} never changes: it is what .float(), .to() or arithmetic made of {of}, and no "
            f"parameter itself; that one gets its gradients (on {strays[0].fed} steps), and no "
            "optimizer and no module holds it"
        )
    if kind == "tensor":
        return (
            f"{name} never changes: it gets gradients (on {strays[0].fed} steps), and no optimizer "
            "and no module holds it"
        )
    return (
        f"{name} is trained but in no module: state_dict() does not save it and .to(device) does "
        "not move it"
    )


@dataclass(frozen=True)
class OneBackwardForAll(Rule):
    """One backward walks a sum of unrelated losses."""

    code = "GRAPH008"
    severity = Severity.NOTE
    since = "0.1"
    advice = (
        "Call backward on each loss in turn: the gradients add up, and each graph is freed "
        "before the next forward. Under DistributedDataParallel use no_sync() until the last."
    )

    steps: int = knob(2, "Report only if it was seen on at least this many of three watched steps.")
    least_bytes: int = knob(1 << 16, "Report only if a loss's graph has at least this many bytes.")
    times: float = knob(1.0, "Report only savings of at least this multiple of parameter bytes.")

    def detect(self, sums: Rows[SummedRow]) -> Iterator[Finding]:
        for seen in together(sums, lambda row: row.at):
            each, steps = min(seen, key=lambda row: row.lost_bytes), len({row.step for row in seen})
            if steps < self.steps or each.each_bytes < self.least_bytes:
                continue
            if each.lost_bytes < self.times * each.leaf_bytes:
                continue
            yield Finding(
                each.site,
                f"this backward walks the sum of {each.n} losses whose graphs share only "
                f"the parameters: together they hold {amounts.size(each.saved_bytes)}, one alone "
                f"{amounts.size(each.each_bytes)}",
                steps=steps,
                per_step=1.0,
                lost_bytes=each.lost_bytes,
                basis="measured",
            )


NO_GRAD = "torch.no_grad()"


@dataclass(frozen=True)
class GraphRecordedInEvaluation(Rule):
    """A model records a graph that is never used."""

    code = "GRAPH003"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    everywhere = True
    advice = (
        "Put the call under torch.no_grad(), or torch.inference_mode() if nothing of it enters a "
        "loss."
    )

    calls: int = knob(3, "Report a line from this many calls on whose graph was never walked.")

    def detect(
        self, evaluations: Rows[EvalRow], strays: Rows[StrayRow], source: Source
    ) -> Iterator[Finding]:
        for place in for_nobody(evaluations, strays, self.calls):
            yield Finding(
                place.site,
                f"{_ran(place)} with gradients enabled, and backward computed "
                "gradients of its parameters that are never used",
                steps=place.steps,
                per_step=place.n / (place.watched or place.steps),
                lost_bytes=place.saved_bytes,
                basis="none" if place.saved_bytes is None else "measured",
            )
        for place in evaluations:
            if place.n < self.calls or place.walked or place.held:
                continue
            saved = place.saved_bytes
            # the line itself lets go of the graph: what it saved is freed at once
            cut = place.mode == "trained" and ".detach()" in place.site.text
            cost = (
                f"; {amounts.size(saved)} were saved for it in one call"
                if saved is not None
                else ""
            )
            yield Finding(
                place.site,
                f"{_ran(place)} with gradients enabled, and no backward walked the graph{cost}",
                steps=place.steps,
                per_step=place.n / (place.watched or place.steps),
                lost_bytes=saved,
                basis="none" if saved is None else "measured",
                severity=Severity.NOTE if cut else None,
                places=places_of(place.site, place.site_of(place.outer)),
                remedy=Remedy(self.advice, tuple(_decorated(source, place))),
            )


def _decorated(source: Source, place: EvalRow) -> Iterator[Edit]:
    """The function around the line, where it does nothing but evaluate."""
    function = evaluating(source, place.site) if place.mode == "eval" else None
    if function is not None:
        reason = "the function's result then has no graph"
        yield Edit(function, "decorate", value=NO_GRAD, reason=reason)


def _ran(place: EvalRow) -> str:
    if place.mode == "trained":
        return f"{place.module} ran {place.n} times"
    return (
        f"{place.module} ran {place.n} times in eval mode"
        if place.mode == "eval"
        else f"{place.module}, which no optimizer trains, ran {place.n} times"
    )


class NewLayerStaysFrozen(CensusSays):
    """A layer is frozen with its first weights, random or zero."""

    code = "GRAPH011"
    SAID: ClassVar = {
        "new": "`{row.other}` is a new {row.name} and is frozen: it still has its random initial "
        "weights, on all of {row.steps} steps that ran it",
        "zero": "`{row.other}` is frozen and all zeros, on all of {row.steps} steps that multiplied "
        "by it: what it computes is zero, and stays it (weights like it: {row.n})",
    }
    advice = (
        "Leave the layer trainable (requires_grad_(True) after everything else is frozen) and "
        "give its parameters to the optimizer."
    )

    def place(self, row: CensusRow, source: Source) -> Site | None:
        """The statement that freezes, if one does, there or at all; else where the layer came in."""
        freezes = [each for each, value in _set(source) if value != "True"]
        site = row.site
        near = (each for each in freezes if site is not None and _together(source, each, site))
        return the_only(near) or the_only(freezes) or site

    def meant(self, row: CensusRow, source: Source) -> bool:
        """Another function unfreezes: it may be called later."""
        site = self.place(row, source)
        return row.kind == "zero" and any(
            value == "True" and site is not None and not _together(source, each, site)
            for each, value in _set(source)
        )


def _set(source: Source) -> Iterator[tuple[Site, str]]:
    """Statements that set whether something has gradients, and what they set it to."""
    for file, node in source.every(ast.Assign):
        if any(isinstance(t, ast.Attribute) and t.attr == "requires_grad" for t in node.targets):
            yield source.site_of(file, node), unparsed(node.value)
    for file, call in source.calls_of("requires_grad_"):
        given = [*call.args, *(named.value for named in call.keywords)]
        yield source.site_of(file, call), unparsed(given[0]) if given else "True"


def _together(source: Source, one: Site, two: Site) -> bool:
    """Both lines are in one function."""
    scopes = [source.index(each.file).scope_at(each.line) for each in (one, two)]
    return one.file == two.file and scopes[0] is scopes[1]
