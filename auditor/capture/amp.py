"""Mixed precision as it ran: where autocast was entered, what GradScaler did and when, what was clipped in between."""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.amp.autocast_mode import autocast
from torch.amp.grad_scaler import GradScaler, OptState
from torch.nn.utils import clip_grad

from auditor.capture.autograd_graph import DOOR, Backward
from auditor.capture.patching import Patches
from auditor.capture.probe import Context, Probe

OLD_MODULES = ("torch.cuda.amp", "torch.cpu.amp")
"""Where the classes live that torch 2.4 deprecated."""


class AmpProbe(Probe):
    """Writes ``amp``.

    Scales are kept on their device and read when the pass is over: reading one is a host sync on a GPU.
    """

    name = "amp"
    parts = ("amp",)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches()
        self._events: Counter[tuple[int, str, str]] = Counter()
        self._clipped: list[tuple[int, set[int]]] = []
        self._scales: list[tuple[int, int, torch.Tensor, torch.Tensor]] = []

    def start(self) -> None:
        """Watch autocast, GradScaler, clipping and the door of backward."""
        self.context.writer.touch("amp")
        self._around(autocast, "__enter__", before=self._entered)
        self._around(GradScaler, "scale", before=self._scaled)
        self._around(GradScaler, "unscale_", before=self._unscales)
        self._around(GradScaler, "step", before=self._unscales)
        self._patch_update()
        if hasattr(clip_grad, "_clip_grads_with_norm_"):  # what clip_grad_norm_ calls, by whatever name the user has that
            self._around(clip_grad, "_clip_grads_with_norm_", before=self._clips)
        DOOR.add(self)

    def stop(self) -> None:
        """Put everything back, then read the scales."""
        DOOR.remove(self)
        self._patches.undo()
        for at, step, before, after in self._scales:
            self.context.add("amp", {"step": step, "at": at, "what": "update", "before": float(before), "after": float(after)})
        self._scales.clear()

    def step_end(self) -> None:
        """Write the step's rows."""
        for (at, what, dtype), n in self._events.items():
            self.context.add("amp", {"at": at, "what": what, "dtype": dtype, "n": n})
        self._events.clear()
        self._clipped.clear()

    # -- what happens ----------------------------------------------------------------------------------------------

    def _entered(self, mode: Any) -> None:
        if type(mode).__module__.startswith(OLD_MODULES):
            self._note("old_autocast")
        if mode._enabled:
            self._note("autocast", str(mode.fast_dtype))

    def _scaled(self, scaler: Any, *_: Any) -> None:
        if type(scaler).__module__.startswith(OLD_MODULES):
            self._note("old_scaler")
        if scaler.is_enabled():
            self._note("scale")

    def _clips(self, parameters: Any, max_norm: float, *_: Any, **__: Any) -> None:
        at = self.context.frames.here() if self.context.in_step and not math.isinf(float(max_norm)) else None
        if at is not None:
            clipped = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
            self._clipped.append((at, {id(parameter) for parameter in clipped}))

    def _unscales(self, scaler: Any, optimizer: Any, *_: Any, **__: Any) -> None:
        """Gradients of an optimizer are about to be unscaled: whoever clipped them before clipped scaled ones."""
        if not self._clipped or not scaler.is_enabled():
            return
        if scaler._per_optimizer_states[id(optimizer)]["stage"] is not OptState.READY:
            return
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for at, clipped in self._clipped:
            if clipped & own:
                self._events[at, "clip_scaled", ""] += 1
        self._clipped = [(at, clipped) for at, clipped in self._clipped if not clipped & own]

    def backward_begins(self, call: Backward) -> None:
        """Note it if autocast is on."""
        if call.nested or not self.context.in_step:
            return
        for device in ("cuda", "cpu"):
            if torch.is_autocast_enabled(device):
                self._note("backward", str(torch.get_autocast_dtype(device)))
                return

    def backward_ends(self, call: Backward) -> None:
        """Nothing more to learn."""

    def backward_lost(self, error: Exception) -> None:
        """Say that the rest of the pass was not seen."""
        self.context.warn(f"backward under autocast was not watched to the end ({type(error).__name__}: {error})")

    def _note(self, what: str, dtype: str = "") -> None:
        at = self.context.frames.here() if self.context.in_step else None
        if at is not None:
            self._events[at, what, dtype.removeprefix("torch.")] += 1

    # -- patches ---------------------------------------------------------------------------------------------------

    def _around(self, owner: Any, name: str, *, before: Callable[..., None]) -> None:
        """Call ``before`` with the same arguments first; what it raises does not reach the user."""
        original = vars(owner)[name]

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with contextlib.suppress(Exception):
                before(*args, **kwargs)
            return original(*args, **kwargs)

        self._patches.attribute(owner, name, watched)

    def _patch_update(self) -> None:
        original = GradScaler.update

        @functools.wraps(original)
        def update(scaler: Any, *args: Any, **kwargs: Any) -> None:
            before = _scale_of(scaler)
            original(scaler, *args, **kwargs)
            after = _scale_of(scaler)
            at = self.context.frames.here() if self.context.in_step else None
            given: Iterable[Any] = (*args, *kwargs.values())
            if at is not None and before is not None and after is not None and all(each is None for each in given):
                self._scales.append((at, self.context.step, before, after))

        self._patches.attribute(GradScaler, "update", update)


def _scale_of(scaler: Any) -> torch.Tensor | None:
    """A copy of the scale; None of a disabled scaler, which has none."""
    scale = getattr(scaler, "_scale", None)
    return scale.detach().clone() if isinstance(scale, torch.Tensor) else None
