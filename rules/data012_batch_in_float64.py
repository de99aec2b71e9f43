"""DATA012: batches come in float64 and are made narrower in the step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from auditor import amounts
from auditor.evidence import Batches, Float64Ops, Machine, Source
from auditor.evidence.recorded.batches import Loader
from auditor.evidence.source.double_origin import double_origins, made_wide
from auditor.evidence.source.statements import shorten
from auditor.model import Finding, FoundAt, Remedy, Severity, Site
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class BatchInFloat64(Rule):
    """
    Batches are made and handed over in float64, and the step makes them narrower.

    ## What it finds
    A loader whose batches all hold a good deal of float64, in a program whose parameters are
    narrower and whose step computes nothing in float64: it converts them first. The line is that
    which makes the tensor of a float64 array in the dataset or collate function, with the line that
    makes the array, where the source has but one. Silent: models in float64, small tensors (labels,
    weights), batches that are not converted (CFG008 tells of these).

    ## Why it costs
    NumPy's default is float64. Samples take twice the memory and the time to make, to collate, to
    send from the workers and to copy to the device, for digits that the model never sees.

    ## Example
    ```python
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Waves(Dataset):
        def __len__(self):
            return 4000

        def __getitem__(self, index):
            return torch.from_numpy(np.hanning(2048))

    batches = iter(DataLoader(Waves(), batch_size=8))
    model = torch.nn.Linear(2048, 1)

    def step():
        model(next(batches).float()).square().mean().backward()
    ```

    ## Use instead
    ```python
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Waves(Dataset):
        def __len__(self):
            return 4000

        def __getitem__(self, index):
            return torch.from_numpy(np.hanning(2048).astype(np.float32))

    batches = iter(DataLoader(Waves(), batch_size=8))
    model = torch.nn.Linear(2048, 1)

    def step():
        model(next(batches)).square().mean().backward()
    ```

    ## When to ignore
    The step reads the digits on the host: times, coordinates, a metric.

    ## Sources
    NumPy documentation, "Data types": the default of floating-point numbers is float64. The size
    is ours.
    """

    code = "DATA012"
    severity = Severity.NOTE
    since = "0.1"

    least_bytes: int = knob(1 << 16, "Bytes of float64 in each batch from which it is reported.")

    def detect(
        self, batches: Batches, doubles: Float64Ops, machine: Machine, source: Source
    ) -> Iterator[Finding]:
        used = (each.graph or each.how == "mixed" for each in doubles.births)
        if doubles.trained or any(used):
            return
        for loader, held, steps in batches.in_float64(self.least_bytes):
            made = _made(source, loader)
            yield Finding(
                made[-1] if made else loader.made_at or loader.consumed_at,
                f"each batch{_of(loader, bool(made))} holds {amounts.size(held)} in float64, which "
                "the step makes narrower before the model takes it",
                steps=steps,
                per_step=1.0,
                lost_bytes=int(held / 2),
                basis="measured",
                seen_on=machine.device,
                places=tuple(FoundAt(site, shorten(site.text)) for site in made[1:] and made),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Make the arrays float32 where they are made: dtype=numpy.float32, or "
            ".astype(numpy.float32) of what is kept; then leave the conversion out of the step."
        )


def _made(source: Source, loader: Loader) -> tuple[Site, ...]:
    """The line that makes the array and the line that makes the tensor in the loader's dataset or
    collate function, in the order of lines.
    """
    wide = {
        (each.site.file, each.site.line): each.site
        for each in double_origins(source)
        if each.width == "wide" and _is_inside(source, each.site, loader)
    }
    if len(wide) != 1:
        return ()
    (site,) = wide.values()
    array = made_wide(source, site)
    return (site,) if array is None else (replace(array, function=site.function), site)


def _is_inside(source: Source, site: Site, loader: Loader) -> bool:
    names = {each.rpartition(".")[2] for each in (loader.dataset, loader.collate)}
    return any(
        node.name in names and node.lineno <= site.line <= (node.end_lineno or 0)
        for node in source.nodes(site.file)
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    )


def _of(loader: Loader, elsewhere: bool) -> str:
    made = loader.made_at
    return f" of the loader made at {made}" if elsewhere and made is not None else ""
