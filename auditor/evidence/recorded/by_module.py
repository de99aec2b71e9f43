"""The step by module: a tree of the rows, and what the step does per second."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby, islice, pairwise
from math import nan
from statistics import median

from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.table import Evidence
from auditor.model.sections import ByModule, ModuleUse, peaks_of
from auditor.recordings.schema.data import BatchRow, LoaderRow
from auditor.recordings.schema.run import ModuleRow

PARTS = (ModuleRow.part,)
"""What a recording holds for it; no rule asks for that."""

MOST = 2000
"""Lines of the tree."""


def by_module(evidence: Evidence) -> ByModule | None:
    """None where no module ran, or none was watched."""
    rows = evidence.rows(ModuleRow) if evidence.has(ModuleRow.part) else []
    loud = {row.name: row.read_from(evidence.recording) for row in rows if row.pass_name == "loud"}
    counted = [row for row in rows if row.pass_name == "numbers"]
    if not any(name and (row.us or row.backward_us) for name, row in loud.items()):
        return None
    flops = {row.name: (row.flops + row.backward_flops) / row.steps for row in counted}
    tree, total = _Tree(loud, flops), sum(flops.values())
    quiet = own_times(evidence.get(Steps).quiet)
    seconds = median(quiet) / 1e6 if quiet else 0.0
    device = evidence.recording.device
    peaks = peaks_of(device.name) if device.timed else {}
    at_peak = sum(
        n / row.steps / peaks.get(kind, nan) for row in counted for kind, n in row.types.items()
    )
    words = max(
        ((row.parameters, row.tokens, row.steps) for row in loud.values() if row.tokens),
        default=(0, 0, 1),
    )

    def rate(amount: float) -> float | None:
        return amount / seconds if amount > 0.0 and seconds else None

    return ByModule(
        modules=tuple(islice(tree.told([""], "", -1), 1, MOST)),
        flops=total,
        flops_per_s=rate(total),
        samples_per_s=rate(_samples(evidence, tree)),
        tokens_per_s=rate(words[1] / words[2]),
        peak=rate(at_peak),
    )


def _samples(evidence: Evidence, tree: _Tree) -> float:
    """Of a step: what its loader gave, else what a model with parameters was; 0 if two differ."""
    given = [row for row in evidence.rows(BatchRow) if row.pass_name == "quiet"]
    used, steps = {row.loader for row in given}, evidence.steps_of("quiet")
    sizes = {row.batch_size for row in evidence.rows(LoaderRow) if row.loader in used}
    size = sizes.pop() if len(sizes) == len(used) == 1 else None
    if size is not None and steps:
        return float(size * sum(row.n for row in given) / steps)
    fed = {
        row.samples / row.steps
        for name, row in tree.loud.items()
        if row.samples and (tree.all[name]["parameters"] or tree.inside[name])
    }
    return fed.pop() if len(fed) == 1 else 0.0


class _Tree:
    """The numbers of each path alone, and with all below it."""

    def __init__(self, loud: dict[str, ModuleRow], flops: dict[str, float]) -> None:
        self.loud = loud
        self.own = defaultdict[str, Counter[str]](Counter)
        self.all = defaultdict[str, Counter[str]](Counter)
        self.inside = defaultdict[str, dict[str, None]](dict)
        self.weighed = any(row.saved_bytes is not None for row in loud.values())
        for name in {**loud, **flops}:
            row = loud.get(name) or ModuleRow(name=name)
            numbers = {
                "forward": row.us,
                "backward": row.backward_us,
                "flops": flops.get(name, 0.0),
                "parameters": row.parameters,
                "saved": row.saved_bytes or 0,
            }
            parts = name.split(".") if name else []
            paths = [".".join(parts[:depth]) for depth in range(len(parts) + 1)]
            for above, below in pairwise(paths):
                self.inside[above].setdefault(below)
            for totals in (self.own[name], *(self.all[path] for path in paths)):
                totals.update(numbers)  # type: ignore[arg-type]

    def told(self, paths: Sequence[str], label: str, depth: int) -> Iterator[ModuleUse]:
        """Alike modules as one, then those inside; what only holds alike ones has no line."""
        groups = self._groups(paths)
        rows = [self.loud[path] for path in paths if path in self.loud]
        if rows or len(groups) != 1:
            found, own = (
                sum((of[path] for path in paths), Counter[str]()) for of in (self.all, self.own)
            )
            whole = self.all[""]["forward"] + self.all[""]["backward"]
            yield ModuleUse(
                path=label,
                depth=depth,
                kind=rows[0].kind if rows else "",
                alike=len(paths),
                site=rows[0].site if rows else None,
                parameters=found["parameters"],
                forward=found["forward"] / whole,
                backward=found["backward"] / whole,
                own=(own["forward"] + own["backward"]) / whole,
                saved_bytes=found["saved"] if self.weighed else None,
                flops=found["flops"],
            )
            depth += 1
        for name, below in groups:
            yield from self.told(below, f"{label}.{name}".lstrip("."), depth)

    def _groups(self, paths: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Names and paths of what is inside, alike numbers as one; the costliest first."""
        found: list[tuple[str, list[str]]] = []
        for _, group in groupby(self.inside[paths[0]], self._shape):
            names = [path.rpartition(".")[2] for path in group]
            for some in [names] if names[0].isdigit() else [[name] for name in names]:
                name = some[0] if len(some) == 1 else f"{some[0]}-{some[-1]}"
                found.append(
                    (name, [f"{path}.{one}".lstrip(".") for path in paths for one in some])
                )
        return sorted(found, key=lambda item: -sum(self._us(path) for path in item[1]))

    def _us(self, path: str) -> float:
        return self.all[path]["forward"] + self.all[path]["backward"]

    def _shape(self, path: str) -> object:
        """What alike modules have in common."""
        row, name = self.loud.get(path), path.rpartition(".")[2]
        below = tuple(map(self._shape, self.inside[path]))
        return "" if name.isdigit() else name, row.kind if row else "", below
