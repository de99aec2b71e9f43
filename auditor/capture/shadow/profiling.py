"""The user's own profilers on the shadow device: they see the host; what they would ask of a GPU is
left out.
"""

from __future__ import annotations

from typing import Any

from torch.autograd import profiler

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.training import ProfilerState


def install(patches: Patches) -> None:
    """Without CUDA's own tracer torch marks each operator by device events, which a build for the
    CPU answers by a warning each.
    """
    make: Any = profiler.profile.__init__
    make_nvtx: Any = profiler.emit_nvtx.__init__

    def init(self: Any, enabled: bool = True, **given: Any) -> None:
        on_cuda = given.get("use_device") == "cuda" or given.get("use_cuda", False)
        make(self, enabled, **{**given, "use_cpu": True} if on_cuda else given)
        if (
            enabled
            and ProfilerState is not None
            and self.profiler_kind == ProfilerState.KINETO_GPU_FALLBACK
        ):
            self.profiler_kind = ProfilerState.KINETO

    def init_nvtx(self: Any, enabled: bool = True, *given: Any, **named: Any) -> None:
        make_nvtx(self, False, *given, **named)

    patches.attribute(profiler.profile, "__init__", init)
    patches.attribute(profiler.emit_nvtx, "__init__", init_nvtx)
