"""NUM013 and 15: non-finite values that were there before the step."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from auditor import amounts
from auditor.evidence.checkpoints import Checkpoints
from auditor.evidence.recorded.load_state_dict import spoiled
from auditor.evidence.source.files import Function, Source, shorten, the_only
from auditor.evidence.table import Rows
from auditor.model import Finding, FoundAt, Remedy, Severity, Site
from auditor.recordings.schema.data import LoadRow
from auditor.recordings.schema.numerics import NormBufferRow
from auditor.rule import Rule
from auditor.syntax.index import nodes_in

from .nonfinite import Birth, Nonfinite

if TYPE_CHECKING:
    from auditor.evidence.scans import TensorFacts


LISTED = 50
"""Tensors that the facts name."""


@dataclass(frozen=True)
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
            f"; {nonfinite.tensors[0].name} is among what it spoiled" if nonfinite.tensors else ""
        )
        load = spoiled(loads, optimizer=birth.phase == "state")
        held = (
            f"{what} held {'NaN' if birth.value == 'nan' else birth.value} before step "
            f"{birth.step} began"
        )
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
            more = f", and {len(bad) - 1} more tensors" if len(bad) > 1 else ""
            yield Finding(
                None,
                f"{checkpoint.name}: {worst.name} is {_share(worst)}{more} (it holds "
                f"{amounts.count(len(checkpoint.scan.tensors), 'tensor')})",
                steps=1,
                seen_on="source",
                facts=(
                    ("file", checkpoint.scan.path),
                    *((each.name, _share(each)) for each in bad[:LISTED]),
                ),
                remedy=_remedy(checkpoints.instead, None),
            )


def _remedy(first: str, site: Site | None) -> Remedy:
    then = "Do not go on from this file; audit run names the line that made the value."
    return Remedy(f"{first}{then if site is None else ''}".strip())


def _brought(load: LoadRow) -> str:
    more = f" and {load.bad - 1} more tensors" if load.bad > 1 else ""
    return f"the state that {load.owner} loads here is not finite in {load.tensors[0]}{more}"


def _share(tensor: TensorFacts) -> str:
    tally = tensor.tally
    if tally is None:
        return "unknown"
    counts = (("NaN", tally.nan), ("inf", tally.positive_inf), ("-inf", tally.negative_inf))
    return " and ".join(f"{100 * n / tally.count:.3g}% {name}" for name, n in counts if n)


def _spoiled(found: NormBufferRow) -> Finding:
    value = "NaN" if found.value == "nan" else found.value
    return Finding(
        found.site,
        f"{found.buffer} of a {found.owner} that runs here holds {value} by step {found.step} of "
        "the diagnostic pass, and the weights are finite: what guards them comes after the "
        "forward that changed it, and every evaluation from now on is not finite",
        steps=1,
        remedy=_remedy(
            "Look at isfinite(batch) before the forward; compute the statistics again. ", found.site
        ),
    )


@dataclass(frozen=True)
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
        value = "NaN" if birth.value == "nan" else birth.value
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
            f"the data of step {birth.step} held {value}{share} {_used(birth, handed)}; {reached}",
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
