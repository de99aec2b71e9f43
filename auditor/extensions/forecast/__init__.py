"""What an operator would take on a GPU that is not here: FLOPs and bytes from shapes, times from
data sheets and a few fitted numbers, always with an interval (docs/forecast.md).
"""

from auditor.extensions.forecast.calls import Call, Tensor, from_profiler
from auditor.extensions.forecast.forecasting import (
    Forecast,
    KindShare,
    Part,
    forecast,
    kernel_us,
    parts_us,
)

__all__ = [
    "Call",
    "Forecast",
    "KindShare",
    "Part",
    "Tensor",
    "forecast",
    "from_profiler",
    "kernel_us",
    "parts_us",
]
