"""Process groups of torch.distributed that need no other process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from auditor.capture.instruments.torch_private.look_up import needed, private

fake_group: Callable[..., Any] = needed(
    "torch._C._distributed_c10d.FakeProcessGroup._create_internal"
)
"""Makes torch's own ``fake`` backend for a rank and a size. Without it: Missing where a program that
runs as one rank of a played world makes a group of gloo.
"""

group_of_name: Callable[[str], Any] = private(
    "torch.distributed.distributed_c10d._resolve_process_group", lambda name: None
)
"""The process group that a functional collective names. Without it: None, which is unknown."""
