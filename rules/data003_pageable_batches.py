"""DATA003: batches are copied to the device from pageable memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Configs, Copies
from auditor.evidence.copies import CopySite
from auditor.evidence.homes import home_of
from auditor.evidence.source import Source
from auditor.model import Finding, Remedy, Severity
from auditor.rule import knob

from .copying import CopyRule

PINNED = "page-locking the batch changes where it lies, not what is in it"


@dataclass(frozen=True)
class LoaderWithoutPinnedMemory(CopyRule):
    """
    Batches are copied to the device from memory that is not pinned.

    ## What it finds
    A ``DataLoader`` without ``pin_memory=True`` whose batches the step copies to the device. Seen in a rehearsal of the
    GPU path.

    ## Why it costs
    From pageable memory the driver copies in two hops, through a staging buffer, and the host takes part; an
    asynchronous copy is not possible. With ``pin_memory=True`` the loader's own thread does the first hop, and
    ``.to(device, non_blocking=True)`` returns at once.

    ## Example
    ```python
    # needs: rehearsal
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(512, 1, device="cuda")
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 512)), batch_size=64))

    def step():
        (x,) = next(batches)
        model(x.to("cuda")).mean().backward()
    ```

    ## Use instead
    ```python
    # needs: rehearsal
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    model = torch.nn.Linear(512, 1, device="cuda")
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 512)), batch_size=64, pin_memory=True))

    def step():
        (x,) = next(batches)
        model(x.to("cuda", non_blocking=True)).mean().backward()
    ```

    ## When to ignore
    The host is short of memory: pinned memory cannot be swapped.

    ## Sources
    PyTorch's DataLoader documentation, "Memory Pinning". The threshold is ours.
    """

    code = "DATA003"
    severity = Severity.WARNING
    since = "0.1"

    small: int = knob(64_000, "Bytes a copy up to which it is a note: the driver stages so little without waiting.")

    def detect(self, copies: Copies, source: Source, configs: Configs) -> Iterator[Finding]:
        for number, place in self._by_loader(copies).items():
            loader = copies.loaders.get(number)
            made_at = loader.made_at if loader is not None else None
            if made_at is not None and not source.called(made_at, "DataLoader"):
                made_at = None  # made by a library, or by a subclass of the user's
            if made_at is None and place.library:
                continue
            moved = "" if made_at is None else f" at {place.site}"
            message = (
                f"{place.amount} of batches are copied to the device{moved} on {place.rhythm}, from memory that is not pinned"
            )
            small = place.bytes_per_step <= self.small * place.per_step
            yield self.report(
                copies,
                place,
                made_at or place.site,
                message,
                severity=Severity.NOTE if small else None,
                hints={
                    "made_at": made_at,
                    "pinned_at": home_of(source, configs, made_at, "DataLoader", "pin_memory", ran=False),
                    "moves": () if place.library else place.moves,
                    "library": place.library,
                },
            )

    def _by_loader(self, copies: Copies) -> dict[int, CopySite]:
        """The first line that moves each loader's batches on most steps, or has them moved by a library."""
        first: dict[int, CopySite] = {}
        for place in self.usual(copies.sites("batch", pinned=False), by_libraries=True):
            for copy in place.copies:
                first.setdefault(-1 if copy.loader is None else copy.loader, place)
        return first

    def remedy(self, finding: Finding) -> Remedy | None:
        made_at = finding.hints.get("made_at")
        text = "Give the loader pin_memory=True, and move its batches with .to(device, non_blocking=True)."
        if finding.hints.get("library"):
            text = f"Give the loader pin_memory=True; {finding.hints['library']} moves its batches."
        if made_at is None:
            return Remedy(text)
        home = finding.hints["pinned_at"]
        edits = (home.edit("True", safe=True, reason=PINNED), *self.without_waiting(finding)) if home is not None else ()
        return Remedy(text, edits)
