"""The null device under its public name (docs/null-device.md): ``python -m auditor.nulldevice``."""

from __future__ import annotations

from auditor.capture.instruments import null_device as watching
from auditor.extensions.nulldevice import GPUS, Gpu, environment, gpu_named

__all__ = ["GPUS", "Gpu", "environment", "gpu_named", "watching"]

if __name__ == "__main__":
    from auditor.extensions.nulldevice.__main__ import main

    main()
