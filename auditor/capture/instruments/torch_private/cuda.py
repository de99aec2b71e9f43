"""CUDA's allocator, and functions of ``torch._C`` that ask for a device."""

from collections.abc import Callable
from typing import Any

from auditor.capture.instruments.torch_private.look_up import for_rehearsals, needed, private

fake_group: Callable[..., Any] = needed(
    "torch._C._distributed_c10d.FakeProcessGroup._create_internal"
)
"""Makes torch's own ``fake`` backend for a rank and a size. Without it: Missing if a program that
runs as one rank of a played world makes a group of gloo.
"""

group_of_name: Callable[[str], Any] = private(
    "torch.distributed.distributed_c10d._resolve_process_group", lambda name: None
)
"""The process group that a functional collective names. Without it: None, which is unknown."""


history_is_on: Callable[[], bool] = private("torch._C._cuda_isHistoryEnabled", lambda: False)
"""Whether allocations are recorded (CUDA builds). Without it: no; the user's may end with ours."""

record_history: Callable[..., None] = needed("torch.cuda.memory._record_memory_history")
"""Records allocations with stacks. Without it: Missing, in a warning, and no snapshot."""

when_initialized: Callable[[Callable[[], None]], None] | None = private("torch.cuda._lazy_call")
"""Calls a function once CUDA is initialized. Without it: None; history begins with a step."""

take_snapshot: Callable[[], Any] = needed("torch.cuda.memory._snapshot")
"""The allocator's state and history. Without it: Missing, and no snapshot is taken."""

attach_oom_observer: Callable[[Any], None] | None = private(
    "torch._C._cuda_attach_out_of_memory_observer"
)
"""Calls a function before an out-of-memory error. Without it: None; it leaves no snapshot."""

C: Any = for_rehearsals("torch._C")
"""The module whose functions a rehearsal replaces."""

group_by_device: Callable[..., Any] = for_rehearsals("torch._C._group_tensors_by_device_and_dtype")
"""Optimizers group their tensors by it."""

nn: Any = for_rehearsals("torch._C._nn")
"""The module that :data:`parse_to` lies in."""

parse_to: Callable[..., Any] = for_rehearsals("torch._C._nn._parse_to")
"""Reads the arguments of ``Module.to``."""
