"""What a scan of a checkpoint found, and the settings that a checkpoint should agree with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Role = Literal["model", "optimizer", "other"]
Format = Literal["torch zip", "torch legacy", "safetensors", "sharded"]


@dataclass(frozen=True)
class ElementCounts:
    """Counts of a tensor's elements. ``low``, ``high``: of the finite ones; None without any."""

    count: int = 0
    nan: int = 0
    positive_inf: int = 0
    negative_inf: int = 0
    low: float | None = None
    high: float | None = None

    @property
    def nonfinite(self) -> int:
        """Elements that are NaN or infinite."""
        return self.nan + self.positive_inf + self.negative_inf

    def __add__(self, other: ElementCounts) -> ElementCounts:
        lows = [each for each in (self.low, other.low) if each is not None]
        highs = [each for each in (self.high, other.high) if each is not None]
        return ElementCounts(
            self.count + other.count,
            self.nan + other.nan,
            self.positive_inf + other.positive_inf,
            self.negative_inf + other.negative_inf,
            min(lows, default=None),
            max(highs, default=None),
        )


@dataclass(frozen=True)
class TensorFacts:
    """A tensor of the file: where it stands (``model.layer.weight``), what it is, and what was
    counted in it.

    ``tally`` is None if the values were not looked at (integers, unknown dtypes, data that is
    missing). ``place`` is the path as it is in the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    role: Role = "other"
    tally: ElementCounts | None = None
    place: tuple[str | int, ...] = ()

    @property
    def scalar(self) -> float | None:
        """The value of a tensor of one finite element, else None."""
        tally = self.tally
        return tally.low if tally is not None and tally.count == 1 else None


@dataclass(frozen=True)
class OptimizerFacts:
    """An optimizer's state: numbers of each parameter group, and its counters."""

    name: str
    groups: tuple[dict[str, float], ...] = ()
    steps: int | None = None


@dataclass(frozen=True)
class SchedulerFacts:
    """A learning-rate scheduler's state. ``base`` are its rates by parameter group."""

    name: str
    base: tuple[float, ...] = ()
    position: int | None = None
    total: int | None = None


@dataclass(frozen=True)
class Scan:
    """One checkpoint, read to its end. ``damage`` are sentences about what is broken; ``limits``
    about what was not looked at; ``aside`` about what is not finite and no damage.

    ``refused`` is why torch does not load it with ``weights_only=True``; ``foreign`` are the names
    for which it must be told to (``torch.serialization.safe_globals``). ``progress`` are the
    counters beside the weights (``step``, ``epoch``).
    """

    path: str
    format: Format
    size: int
    modified: float = 0.0
    tensors: tuple[TensorFacts, ...] = ()
    damage: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()
    refused: str = ""
    foreign: tuple[str, ...] = ()
    optimizers: tuple[OptimizerFacts, ...] = ()
    schedulers: tuple[SchedulerFacts, ...] = ()
    scaler: bool = False
    rng: bool = False
    progress: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """One value: ``name`` is its path (``optimizer.lr``, ``AdamW.lr`` for a keyword)."""

    name: str
    value: float | str | bool

    @property
    def key(self) -> str:
        """Last word of its path, in lower case, with ``_`` for ``-``."""
        return self.name.rpartition(".")[2].lower().replace("-", "_")
