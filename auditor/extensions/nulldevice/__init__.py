"""A CUDA device without a GPU: torch's own CUDA code runs on it, and only the kernels do nothing
(docs/null-device.md).
"""

from __future__ import annotations

from auditor.extensions.nulldevice.environment import environment
from auditor.extensions.nulldevice.found import lacking
from auditor.model.gpus import GPUS, Gpu, gpu_named

__all__ = ["GPUS", "Gpu", "environment", "gpu_named", "lacking"]
