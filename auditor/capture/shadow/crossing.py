"""The words between the shadow device and whoever listens: what crossed, what was held."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from auditor.errors import AuditProblem
from auditor.model.gpus import GPUS

Direction = Literal["h2d", "d2h"]


@dataclass(frozen=True)
class GpuModel:
    """The one GPU that the program sees."""

    name: str
    total_bytes: int
    capability: tuple[int, int]
    processors: int


DEFAULT_GPU: Final = "H200"

MODELS: Final = tuple(
    GpuModel(gpu.name, gpu.memory_bytes, gpu.capability, gpu.processors)
    for gpu in sorted(GPUS, key=lambda gpu: gpu.key != DEFAULT_GPU)
)
"""The null device's cards, by the name that the driver gives them; the default is the first."""


@dataclass(frozen=True)
class Crossing:
    """One time that host and device met."""

    kind: str
    """As in the part ``reads`` (docs/recording.md) for host reads; ``copy`` (host to device),
    ``synchronize``, ``allocator``.
    """
    direction: Direction | None
    nbytes: int
    """Bytes that cross the bus; 0 where nothing but the wait does."""
    pinned: bool
    """The host's side of a copy is page-locked."""
    blocking: bool
    """The host waits on real CUDA."""
    operator: str
    """The operator (``aten::nonzero``) or the API (``Tensor.to``, ``torch.cuda.synchronize``,
    ``GradScaler.step``).
    """
    constant: bool = False
    """A host-to-device copy of numbers written in Python."""
    subject: Any = field(default=None, compare=False, repr=False)
    """The host tensor that is copied to the device; None for anything else."""


class Memory(Protocol):
    """An allocator that answers for the device. Sizes in bytes."""

    @property
    def total_bytes(self) -> int:
        """Bytes of the card."""

    def stats(self) -> dict[str, int]:
        """As ``torch.cuda.memory_stats``."""

    def reset_peak(self) -> None:
        """As ``torch.cuda.reset_peak_memory_stats``."""

    def empty_cache(self) -> None:
        """As ``torch.cuda.empty_cache``."""

    def snapshot(self) -> dict[str, Any] | None:
        """As ``torch.cuda.memory._snapshot``; None if there is none."""


class Listener:
    """Hears what happens, synchronously and inside the caller's stack. Override what you need."""

    tracks_memory: bool = False
    """Ask for :meth:`allocated` and :meth:`freed`; otherwise storages are not followed and cost
    nothing.
    """

    memory: Memory | None = None
    """Who answers the memory functions of ``torch.cuda``; None: as much is reserved as lives."""

    def crossing(self, crossing: Crossing) -> None:
        """Host and device met."""

    def allocated(self, storage_id: int, nbytes: int) -> None:
        """A storage appeared on the device; ``torch.OutOfMemoryError`` plays a full card."""

    def freed(self, storage_id: int) -> None:
        """A storage that was reported is gone."""

    def workspace(self, nbytes: int, *, kept: bool) -> None:
        """Torch took a workspace for matrix products; one that is not kept it gave back at once."""

    def noted(self, operator: str, said: str) -> None:
        """The program asks for something that is done another way here, with the same result."""

    def limit(self, operator: str, reason: str) -> None:
        """The program asks for what the shadow cannot do; :class:`ShadowLimit` follows unless you
        raise something else.
        """


class ShadowLimit(AuditProblem):
    """What was asked for exists on a GPU only; going on would rehearse another program."""

    def __init__(self, operator: str, reason: str) -> None:
        super().__init__(f"{operator}: {reason}")
        self.operator = operator
        self.reason = reason

    def __reduce__(self) -> tuple[type[ShadowLimit], tuple[str, str]]:
        return type(self), (self.operator, self.reason)
