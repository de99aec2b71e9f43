"""What a rehearsed step would ask of GPUs that are not there. Standard library only.

Nothing here was measured, and no time is a point: each is an interval.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

CATEGORY, MARK = "forecast", "forecast_for"
"""In a forecast that is written as a trace: category of every event, and the key of the file that
names the GPU. No reader of ours takes such a file for a recording.
"""
FILE = "forecast.trace.json.gz"
"""Its name beside the report."""


@dataclass(frozen=True)
class GpuForecast:
    """What one GPU would do. ``low_us`` and ``high_us`` hold the time in each step in which it is
    busy with kernels; the step itself is not shorter. Both are None where ``reasons`` say why
    nothing can be said.
    """

    gpu: str
    low_us: float | None = None
    high_us: float | None = None
    mfu_at_most: float | None = None
    """Share of the peak of 16-bit products that the step's FLOPs reach at most: were the GPU never
    idle, and ``low_us`` its time."""
    reasons: tuple[str, ...] = ()
    bound: Literal["host", "device", ""] = ""
    """What the step waits for over the whole of both intervals: ``host`` is launch-bound; empty
    where they overlap, or the host's time is not known."""
    idle_low_us: float | None = None
    idle_high_us: float | None = None
    """Ends of the time in each step in which the GPU is idle; None without the host's time."""
    step_low_us: float | None = None
    step_high_us: float | None = None
    """Ends of the step's time; None without the host's time."""


@dataclass(frozen=True)
class HostForecast:
    """The host's time for a step, were the GPU infinitely fast: what it took on the machine at hand
    in ``steps`` steps on the null device, and what a driver's launches may add; times ``scale``.
    """

    steps: int
    scale: float
    low_us: float
    high_us: float


@dataclass(frozen=True)
class OperatorClass:
    """A class of operators, and its share of the predicted time on the GPU that was chosen."""

    name: str
    share: float


@dataclass(frozen=True)
class Forecast:
    """A step as rehearsed, on several GPUs. ``gpus`` begins with the one that was chosen: by
    ``--gpu`` if ``asked``, else by default.

    ``nominal`` is how often an interval is meant to hold.
    """

    basis: Literal["forecast"] = "forecast"
    asked: bool = False
    steps: int = 0
    """Steps that were rehearsed."""
    operators: float = 0.0
    """Operators that start kernels, in a step."""
    flops: float = 0.0
    """Of matrix products, convolutions and attention, in a step."""
    nominal: float = 0.8
    gpus: tuple[GpuForecast, ...] = ()
    classes: tuple[OperatorClass, ...] = ()
    """The longest first."""
    host: HostForecast | None = None
    """None where it is not known: only the shadow ran."""
