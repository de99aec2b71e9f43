"""A CUDA device without a GPU: a CUDA build of torch runs on it as it is, and only the kernels do
nothing (README.md).
"""

from __future__ import annotations

from torch_null_device.environment import environment
from torch_null_device.errors import NullDeviceProblem
from torch_null_device.found import lacking
from torch_null_device.gpus import GPUS, Gpu, gpu_named
from torch_null_device.variables import without_null_device

__all__ = [
    "GPUS",
    "Gpu",
    "NullDeviceProblem",
    "environment",
    "gpu_named",
    "lacking",
    "without_null_device",
]
__version__ = "0.1.0"
