"""The step by module: a tree of the rows, and what the step does per second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import nan
from statistics import median

from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.table import Evidence
from auditor.model.sections import ByModule, ModuleUse, peaks_of
from auditor.recordings.schema.data import BatchRow, LoaderRow
from auditor.recordings.schema.run import ModuleRow

MOST = 200
"""Modules that are told of those in one."""


def by_module(evidence: Evidence) -> ByModule | None:
    """None where no module ran, or none was watched."""
    rows = evidence.rows(ModuleRow) if evidence.has(ModuleRow.part) else []
    loud = [row.read_from(evidence.recording) for row in rows if row.pass_name == "loud"]
    counted = [row for row in rows if row.pass_name == "numbers"]
    timed, root = any(row.us or row.backward_us for row in loud), _Module()
    for row in (*loud, *counted):
        root.add(row.name.split(".") if row.name else [], row, timed)
    if not root.inside or not root.cost:
        return None
    quiet = own_times(evidence.get(Steps).quiet)
    per_s = 1e6 / median(quiet) if quiet else 0.0
    device = evidence.recording.device
    peaks = peaks_of(device.name) if device.timed else {}
    at_peak = sum(
        n / row.steps / peaks.get(kind, nan) for row in counted for kind, n in row.types.items()
    )
    texts = (row for row in loud if row.tokens)
    words = max(texts, key=lambda row: row.parameters, default=ModuleRow(name="", steps=1))
    return ByModule(
        modules=tuple(_inside(root, [root], "")),
        timed=timed,
        flops=root.all["flops"],
        flops_per_s=root.all["flops"] * per_s or None,
        samples_per_s=_samples(evidence, loud) * per_s or None,
        tokens_per_s=words.tokens / words.steps * per_s or None,
        peak=at_peak * per_s if at_peak * per_s > 0.0 else None,
    )


def _samples(evidence: Evidence, loud: Sequence[ModuleRow]) -> float:
    """Of a step: what its loader gave, else what its model was given; 0 if two differ."""
    given = [row for row in evidence.rows(BatchRow) if row.pass_name == "quiet"]
    used, steps = {row.loader for row in given}, evidence.steps_of("quiet")
    sizes = [row.batch_size or 0 for row in evidence.rows(LoaderRow) if row.loader in used]
    if steps and len(used) == 1 and any(sizes):
        return max(sizes) * sum(row.n for row in given) / steps
    fed = {row.samples / row.steps for row in loud if row.samples}
    return fed.pop() if len(fed) == 1 else 0.0


class _Module:
    """The numbers of a path: its own row, and the sum with all below it."""

    def __init__(self) -> None:
        self.row = ModuleRow(name="")
        self.own, self.all = 0.0, Counter[str]()
        self.inside: dict[str, _Module] = {}

    @property
    def cost(self) -> float:
        """Of forward and backward."""
        return self.all["forward"] + self.all["backward"]

    @property
    def shape(self) -> object:
        """What alike modules have in common."""
        return self.row.kind, tuple((name, each.shape) for name, each in self.inside.items())

    def add(self, path: Sequence[str], row: ModuleRow, timed: bool) -> None:
        """Count a row for what is at a path below."""
        forward, backward = row.flops / row.steps, row.backward_flops / row.steps
        numbers = Counter[str]()
        numbers["flops"], numbers["parameters"] = forward + backward, row.parameters  # type: ignore[assignment]
        numbers["saved"], numbers["weighed"] = row.saved_bytes or 0, row.saved_bytes is not None
        if timed:  # the precision pass counts, and its times say nothing
            measured = row.pass_name == "loud"
            forward, backward = row.us * measured, row.backward_us * measured
        numbers["forward"], numbers["backward"] = forward, backward  # type: ignore[assignment]
        self.all.update(numbers)
        if path:
            self.inside.setdefault(path[0], _Module()).add(path[1:], row, timed)
        else:
            self.own += forward + backward
            self.row = row if row.kind else self.row


def _inside(root: _Module, outer: Sequence[_Module], label: str) -> Iterator[ModuleUse]:
    """What alike modules hold, the costliest first; one that was not called itself is left out."""
    groups: list[tuple[str, list[_Module]]] = []
    # Layers with a number are told together where they are alike.
    shapes = [(name.isdigit() or name, m.shape, name) for name, m in outer[0].inside.items()]
    for _, group in groupby(shapes, key=lambda layer: layer[:2]):
        names = [name for *_, name in group]
        span = names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}"
        alike = [each.inside[name] for each in outer for name in names]
        groups.append((f"{label}.{span}".lstrip("."), alike))
    groups.sort(key=lambda group: -sum(each.cost for each in group[1]))
    for path, alike in groups[:MOST]:
        row, inside = alike[0].row, tuple(_inside(root, alike, path))
        if not row.kind:
            yield from inside
            continue
        found = sum((each.all for each in alike), Counter[str]())
        yield ModuleUse(
            path=path,
            kind=row.kind,
            alike=len(alike),
            site=row.site,
            parameters=found["parameters"],
            forward=found["forward"] / root.cost,
            backward=found["backward"] / root.cost,
            own=sum(each.own for each in alike) / root.cost,
            saved_bytes=found["saved"] if root.all["weighed"] else None,
            flops=found["flops"],
            inside=inside,
        )
