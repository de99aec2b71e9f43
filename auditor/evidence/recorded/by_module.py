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
    if not root.inside or not root.all["cost"]:
        return None
    quiet = own_times(evidence.get(Steps).quiet)
    seconds = median(quiet) / 1e6 if quiet else 0.0
    device = evidence.recording.device
    peaks = peaks_of(device.name) if device.timed else {}
    at_peak = sum(
        n / row.steps / peaks.get(kind, nan) for row in counted for kind, n in row.types.items()
    )
    words = max(
        ((row.parameters, row.tokens / row.steps) for row in loud if row.tokens), default=(0, 0.0)
    )

    def rate(amount: float) -> float | None:
        return amount / seconds if amount > 0.0 and seconds else None

    return ByModule(
        modules=tuple(_inside(root, [root], "")),
        timed=timed,
        flops=root.all["flops"],
        flops_per_s=rate(root.all["flops"]),
        samples_per_s=rate(_samples(evidence, loud)),
        tokens_per_s=rate(words[1]),
        peak=rate(at_peak),
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
    """The numbers of a path alone, and with all below it."""

    def __init__(self) -> None:
        self.row = ModuleRow(name="")
        self.own, self.all = 0.0, Counter[str]()
        self.inside: dict[str, _Module] = {}

    @property
    def shape(self) -> object:
        """What alike modules have in common."""
        return self.row.kind, tuple((name, each.shape) for name, each in self.inside.items())

    def add(self, path: Sequence[str], row: ModuleRow, timed: bool) -> None:
        """Count a row for what is at a path below."""
        forward, backward = row.flops / row.steps, row.backward_flops / row.steps
        flops = forward + backward
        if timed:  # the precision pass counts, and its times say nothing
            measured = row.pass_name == "loud"
            forward, backward = row.us * measured, row.backward_us * measured
        numbers = Counter[str](  # type: ignore[call-overload]
            forward=forward,
            backward=backward,
            cost=forward + backward,
            flops=flops,
            parameters=row.parameters,
            saved=row.saved_bytes or 0,
            weighed=row.saved_bytes is not None,
        )
        self.all.update(numbers)
        if path:
            self.inside.setdefault(path[0], _Module()).add(path[1:], row, timed)
        else:
            self.own += numbers["cost"]
            self.row = row if row.kind else self.row


def _inside(root: _Module, outer: Sequence[_Module], label: str) -> Iterator[ModuleUse]:
    """What alike modules hold, the costliest first; one that was not called itself is left out."""
    groups: list[tuple[str, list[_Module]]] = []
    for _, group in groupby(outer[0].inside.items(), _kind_of):
        names = [name for name, _ in group]
        span = names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}"
        alike = [each.inside[name] for each in outer for name in names]
        groups.append((f"{label}.{span}".lstrip("."), alike))
    groups.sort(key=lambda group: -sum(each.all["cost"] for each in group[1]))
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
            forward=found["forward"] / root.all["cost"],
            backward=found["backward"] / root.all["cost"],
            own=sum(each.own for each in alike) / root.all["cost"],
            saved_bytes=found["saved"] if root.all["weighed"] else None,
            flops=found["flops"],
            inside=inside,
        )


def _kind_of(item: tuple[str, _Module]) -> object:
    """Layers with a number are told together where they are alike."""
    name, module = item
    return name.isdigit() or name, module.shape
