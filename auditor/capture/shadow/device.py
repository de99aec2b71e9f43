"""Starting and stopping the shadow: one at a time, everything undone at the end."""

from __future__ import annotations

import contextlib
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any, Literal, Self

import torch

from auditor.capture.instruments.environment import default_device
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.dispatch import (
    HAS_SCHEMAS,
    REHEARSAL_NEEDS,
    EnableTorchFunction,
)
from auditor.capture.instruments.torch_private.late_compiler import is_put_off
from auditor.capture.instruments.torch_private.look_up import Missing, require
from auditor.capture.shadow import (
    autocast,
    facade,
    factories,
    limits,
    methods,
    numbered,
    one_rank,
    parallel,
    paths,
    saving,
)
from auditor.capture.shadow import operators as _operators  # noqa: F401 - wires itself to the class of tensors
from auditor.capture.shadow.crossing import MODELS, GpuModel, Listener
from auditor.capture.shadow.current import HERE, PLAYING, Current
from auditor.errors import AuditProblem
from auditor.model.gpus import gpu_named

IMPORTED_FIRST = (
    "torch._dynamo",  # optimizers import it late
    # the first forward derivative does, and it scripts what it imports
    "torch._decomp.decompositions_for_jvp",
)
"""What torch itself imports when it is first needed, and must see torch as it is: the compiler only
where a program may compile after the shadow has left."""


class ShadowDevice:
    """A CUDA device played on the CPU; ``start`` and ``stop``, or ``with``."""

    def __init__(
        self,
        listener: Listener | None = None,
        *,
        gpu: str | GpuModel = MODELS[0],
        compiled: Literal["refuse", "eager"] = "refuse",
    ) -> None:
        self._current = Current(
            listener or Listener(), gpu if isinstance(gpu, GpuModel) else model_named(gpu)
        )
        self._compiled = compiled
        self._patches = Patches()

    @property
    def gpu(self) -> GpuModel:
        """The card that is played."""
        return self._current.gpu

    @property
    def operators(self) -> int:
        """Operators that ran on the device so far."""
        return self._current.operators

    @property
    def live_bytes(self) -> int:
        """Bytes of the storages on the device, where the listener tracks memory."""
        return self._current.live_bytes

    def start(self) -> Self:
        """Play; RuntimeError where a real GPU is, another shadow plays, or torch lacks what a
        shadow is made of.
        """
        if PLAYING[0] is not None:
            raise RuntimeError("a shadow CUDA device is already being played in this process")
        if torch.cuda.is_available():
            raise RuntimeError("this machine has a CUDA device: run the program on it instead")
        require(*REHEARSAL_NEEDS)
        if not HAS_SCHEMAS:
            raise Missing("torch._ops.OpOverload._schema")
        for name in IMPORTED_FIRST[1:] if is_put_off() else IMPORTED_FIRST:
            # a torch without it imports nothing late
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(name)
        try:
            self._install()
        except BaseException:
            self.stop()
            raise
        return self

    def _install(self) -> None:
        before = _surface()
        PLAYING[0] = self._current
        self._patches.on_undo(lambda: PLAYING.__setitem__(0, None))
        autocast.install(self._patches)
        paths.install(self._patches)
        numbered.install(self._patches)
        factories.install(self._patches)
        methods.install(self._patches)
        parallel.install(self._patches)
        one_rank.install(self._patches)
        saving.install(self._patches)
        install(self._patches)
        facade.install(self._patches, self._current)
        limits.install(self._patches, self._current, compiled=self._compiled)
        self._patches.on_undo(_forget_default_device)
        _rebind(self._patches, before)

    def stop(self) -> None:
        """Undo everything; may be called twice. Shadow tensors stay usable."""
        self._patches.undo()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


shadow_cuda = ShadowDevice


def model_named(name: str) -> GpuModel:
    """The card called ``name``, whose name has it as a word, or with that key of the null device's;
    ValueError lists them.
    """
    for model in MODELS:
        if name == model.name or name.lower() in model.name.lower().split():
            return model
    try:
        known = gpu_named(name).name
    except AuditProblem:
        raise ValueError(
            f"no GPU model {name!r}; there are: {', '.join(model.name for model in MODELS)}"
        ) from None
    return next(model for model in MODELS if model.name == known)


def _forget_default_device() -> None:
    """A default device that the program left behind would not exist any more."""
    if default_device().type == "cuda":
        torch.set_default_device(None)


def _surface() -> dict[str, Any]:
    """What programs import by name, as it is now."""
    found = {}
    for module in (torch, torch.cuda):
        found.update(
            {
                f"{module.__name__}.{name}": value
                for name, value in vars(module).items()
                if callable(value)
            }
        )
    return found


def _rebind(patches: Patches, before: dict[str, Any]) -> None:
    """Names that modules took before we came (``from torch import zeros``) follow the patch."""
    replaced = {}
    for name, value in before.items():
        owner, _, attribute = name.rpartition(".")
        now = getattr(sys.modules[owner], attribute)
        if now is not value:
            replaced[id(value)] = now
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("torch", "auditor") or not isinstance(
            module, types.ModuleType
        ):
            continue
        if replaced.keys().isdisjoint(map(id, vars(module).values())):
            continue  # a hundred thousand names are looked through, most of them here
        for attribute, value in list(vars(module).items()):
            if id(value) in replaced:
                patches.attribute(module, attribute, replaced[id(value)])


# -- packing ---------------------------------------------------------------------------------------
# The program's own ``saved_tensors_hooks`` (``save_on_cpu`` among them), which torch calls from
# inside an operator.


def install(patches: Patches) -> None:
    """Let hooks see the shadow device as the program's other code does."""
    enter: Any = torch.autograd.graph.saved_tensors_hooks.__enter__
    patches.code(enter, _entered)


def _entered(original: Callable[..., Any], hooks: Any) -> Any:
    """Inside an operator no tensor subclass is asked, so that ``tensor.cpu()`` in a hook would
    cross unseen: each hook runs as if it stood outside.
    """
    pack, unpack = hooks.pack_hook, hooks.unpack_hook
    if str(getattr(pack, "__module__", "")).startswith("auditor."):
        return original(hooks)
    hooks.pack_hook, hooks.unpack_hook = _outside(pack), _outside(unpack)
    try:
        return original(hooks)
    finally:
        hooks.pack_hook, hooks.unpack_hook = pack, unpack


def _outside(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(given: Any) -> Any:
        function, HERE.function = HERE.function, None
        try:
            with EnableTorchFunction():
                return hook(given)
        finally:
            HERE.function = function

    return run
