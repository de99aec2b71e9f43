"""The step by module: a tree of the rows, and what the step does per second."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import nan
from statistics import median

from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.table import Evidence
from auditor.model.sections import ByModule, ModuleUse, peaks_of
from auditor.recordings.schema.data import BatchRow, LoaderRow
from auditor.recordings.schema.run import ModuleRow


def by_module(evidence: Evidence) -> ByModule | None:
    """None if no module ran, or none was watched."""
    rows = evidence.rows(ModuleRow)
    loud = [row.read_from(evidence.recording) for row in rows if row.pass_name == "loud"]
    counted = [row for row in rows if row.pass_name == "numbers"]
    timed, root = any(row.us or row.backward_us for row in loud), _Module()
    for row in (*loud, *counted):
        root.add(row.name.split(".") if row.name else [], row, timed)
    if not root.inside or not root.forward + root.backward:
        return None
    quiet = own_times(evidence.get(Steps).quiet)
    per_s = 1e6 / median(quiet) if quiet else 0.0
    peaks = peaks_of(evidence.recording.device.name)
    at_peak = sum(
        n / row.steps / peaks.get(kind, nan) for row in counted for kind, n in row.types.items()
    )
    return ByModule(
        modules=tuple(_inside(root, [root], "")),
        timed=timed,
        flops=root.flops,
        flops_per_s=root.flops * per_s or None,
        samples_per_s=_samples(evidence, len(quiet)) * per_s or None,
        tokens_per_s=max((row.tokens / row.steps for row in loud), default=0.0) * per_s or None,
        peak=at_peak * per_s if at_peak * per_s > 0.0 else None,
    )


def _samples(evidence: Evidence, steps: int) -> float:
    """Of a step, as its loader gave them; 0 without one, or with several."""
    given = [row for row in evidence.rows(BatchRow) if row.pass_name == "quiet"]
    used = {row.loader for row in given}
    sizes = [row.batch_size or 0 for row in evidence.rows(LoaderRow) if row.loader in used]
    batches = sum(row.n for row in given) / steps if len(used) == 1 and steps else 0.0
    return batches * max(sizes, default=0)


class _Module:
    """The numbers of a path: its own row, and the sum with all below it."""

    def __init__(self) -> None:
        self.row = ModuleRow(name="")
        self.saved_bytes, self.flops, self.forward, self.backward = 0, 0.0, 0.0, 0.0
        self.inside: dict[str, _Module] = {}

    @property
    def shape(self) -> object:
        """What alike modules have in common."""
        return self.row.kind, tuple((name, each.shape) for name, each in self.inside.items())

    def add(self, path: Sequence[str], row: ModuleRow, timed: bool) -> None:
        """Count a row for what is at a path below."""
        forward = row.us if timed else row.flops / row.steps
        backward = row.backward_us if timed else row.backward_flops / row.steps
        self.forward, self.backward = self.forward + forward, self.backward + backward
        self.flops += (row.flops + row.backward_flops) / row.steps
        self.saved_bytes += row.saved_bytes
        if path:
            self.inside.setdefault(path[0], _Module()).add(path[1:], row, timed)
        elif row.kind:
            self.row = row


def _inside(root: _Module, outer: Sequence[_Module], label: str) -> Iterator[ModuleUse]:
    """What alike modules hold, the costliest first; one that was not called itself is left out."""
    groups: list[tuple[str, list[_Module]]] = []
    # Layers with a number are shown together where they are alike.
    shapes = [(name.isdigit() or name, m.shape, name) for name, m in outer[0].inside.items()]
    for _, group in groupby(shapes, key=lambda layer: layer[:2]):
        names = [name for *_, name in group]
        span = names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}"
        alike = [each.inside[name] for each in outer for name in names]
        groups.append((f"{label}.{span}".lstrip("."), alike))
    groups.sort(key=lambda group: -sum(each.forward + each.backward for each in group[1]))
    whole = root.forward + root.backward
    for path, alike in groups:
        row, inside = alike[0].row, tuple(_inside(root, alike, path))
        if not row.kind:
            yield from inside
            continue
        yield ModuleUse(
            path=path,
            kind=row.kind,
            alike=len(alike),
            site=row.site,
            forward=sum(each.forward for each in alike) / whole,
            backward=sum(each.backward for each in alike) / whole,
            saved_bytes=sum(each.saved_bytes for each in alike),
            flops=sum(each.flops for each in alike),
            inside=inside,
        )
