"""The program's own ``saved_tensors_hooks`` (``save_on_cpu`` among them), which torch calls from
inside an operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.dispatch import EnableTorchFunction
from auditor.capture.shadow.current import HERE


def install(patches: Patches) -> None:
    """Let hooks see the shadow device as the program's other code does."""
    enter: Any = torch.autograd.graph.saved_tensors_hooks.__enter__
    patches.code(enter, _entered)


def _entered(original: Callable[..., Any], hooks: Any) -> Any:
    """Inside an operator no tensor subclass is asked, so that ``tensor.cpu()`` in a hook would
    cross unseen: each hook runs as if it stood outside.
    """
    pack, unpack = hooks.pack_hook, hooks.unpack_hook
    if _is_ours(pack):
        return original(hooks)
    hooks.pack_hook, hooks.unpack_hook = _outside(pack), _outside(unpack)
    try:
        return original(hooks)
    finally:
        hooks.pack_hook, hooks.unpack_hook = pack, unpack


def _is_ours(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).startswith("auditor.")


def _outside(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(given: Any) -> Any:
        function, HERE.function = HERE.function, None
        try:
            with EnableTorchFunction():
                return hook(given)
        finally:
            HERE.function = function

    return run
