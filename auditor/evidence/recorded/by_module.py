"""The step by module: a tree of the rows, and what the step does per second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from math import nan
from statistics import median

from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.table import Evidence
from auditor.model.by_module import ByModule, ModuleUse, peaks_of
from auditor.recordings.schema.data import BatchRow, LoaderRow
from auditor.recordings.schema.run import ModuleRow

MOST = 2000
"""Lines of the tree."""


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
        modules=tuple(islice(_inside(root, [root], "", 0), MOST)),
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
    sizes = {row.batch_size for row in evidence.rows(LoaderRow) if row.loader in used}
    size = sizes.pop() if len(sizes) == len(used) == 1 else None
    if size is not None and steps:
        return float(size * sum(row.n for row in given) / steps)
    fed = {row.samples / row.steps for row in loud if row.samples}
    return fed.pop() if len(fed) == 1 else 0.0


class _Module:
    """The numbers of a path alone, and with all below it."""

    def __init__(self) -> None:
        self.row = ModuleRow(name="")
        self.own, self.all = Counter[str](), Counter[str]()
        self.inside: dict[str, _Module] = {}

    @property
    def cost(self) -> float:
        """Time in us or, where none was taken, operations."""
        return self.all["forward"] + self.all["backward"]

    @property
    def shape(self) -> object:
        """What alike modules have in common."""
        return self.row.kind, tuple((name, each.shape) for name, each in self.inside.items())

    def add(self, path: Sequence[str], row: ModuleRow, timed: bool) -> None:
        """Count a row for what is at a path below."""
        numbers = {
            "forward": row.us if timed else row.flops,
            "backward": row.backward_us if timed else row.backward_flops,
            "flops": (row.flops + row.backward_flops) / row.steps,
            "parameters": row.parameters,
            "saved": row.saved_bytes or 0,
            "weighed": row.saved_bytes is not None,
        }
        self.all.update(numbers)  # type: ignore[arg-type]
        if path:
            self.inside.setdefault(path[0], _Module()).add(path[1:], row, timed)
            return
        self.own.update(numbers)  # type: ignore[arg-type]
        self.row = row if row.kind else self.row


def _inside(root: _Module, outer: Sequence[_Module], label: str, depth: int) -> Iterator[ModuleUse]:
    """Lines of what alike modules hold, the costliest first; what was not called itself has none."""
    groups: list[tuple[str, list[_Module]]] = []
    for _, group in groupby(outer[0].inside.items(), _kind_of):
        names = [name for name, _ in group]
        span = names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}"
        groups.append((span, [each.inside[name] for each in outer for name in names]))
    for span, alike in sorted(groups, key=lambda group: -sum(each.cost for each in group[1])):
        path, row = f"{label}.{span}".lstrip("."), alike[0].row
        own, found = (
            sum((each.own for each in alike), Counter[str]()),
            sum((each.all for each in alike), Counter[str]()),
        )
        if row.kind:
            yield ModuleUse(
                path=path,
                depth=depth,
                kind=row.kind,
                alike=len(alike),
                site=row.site,
                parameters=found["parameters"],
                forward=found["forward"] / root.cost,
                backward=found["backward"] / root.cost,
                own=(own["forward"] + own["backward"]) / root.cost,
                saved_bytes=found["saved"] if root.all["weighed"] else None,
                flops=found["flops"],
            )
        yield from _inside(root, alike, path, depth + bool(row.kind))


def _kind_of(item: tuple[str, _Module]) -> object:
    """Layers with a number are told together where they are alike."""
    name, module = item
    return name.isdigit() or name, module.shape
