"""A CUDA device played on the CPU: a trainer's GPU path runs unmodified, with real values, and says
what crosses.

::

    class Prints(Listener):
        def crossing(self, crossing):              # called inside the user's stack: walk sys._getframe to their line
            print(crossing.kind, crossing.operator, crossing.nbytes, crossing.blocking)

    with shadow_cuda(Prints(), gpu="NVIDIA H200"):   # or .start() and .stop()
        train()                                       # model.cuda(), autocast("cuda"), GradScaler, pinned loaders ...

Tensors have CUDA's dispatch keys and the CPU's storage (:mod:`.tensor`); operators run on the CPU
tensors behind them (:mod:`.operators`); what torch decides by device above that is in
:mod:`.functions`. What the shadow cannot do raises
:class:`ShadowLimit` after ``listener.limit(operator, reason)``. ``Listener.tracks_memory = True``
asks for ``allocated(storage_id, nbytes)`` and ``freed(storage_id)``. docs/rehearsal.md says what is
covered, what is not, and why it is built this way.
"""

from __future__ import annotations

from auditor.capture.shadow.current import MODELS, Crossing, GpuModel, Listener, ShadowLimit
from auditor.capture.shadow.device import ShadowDevice, shadow_cuda

__all__ = [
    "MODELS",
    "Crossing",
    "GpuModel",
    "Listener",
    "ShadowDevice",
    "ShadowLimit",
    "shadow_cuda",
]
