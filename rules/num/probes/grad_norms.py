"""How large the gradients of each optimizer are: one norm a step, read after the pass."""

import math
import weakref
from collections.abc import Sequence

import torch
from torch.amp.grad_scaler import GradScaler
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.probes.base import Context
from auditor.capture.probes.numerics.nonfinite import norms_of, parameters_of, values_of
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, groups_of, watch_clipping

from ..rows import NormRow

QUIET_EVERY = 5
"""Steps between looks in the timed pass."""

OPTIMIZERS = 16
"""Upper bound on followed optimizers: a program that creates one per step would fill memory."""

_HALF = (torch.float16, torch.bfloat16)


class GradNormsProbe(OptimizerProbe):
    """Writes ``norms``.

    A norm that clipping computed is used as it is, so that what clipping hides is seen; else one
    reduction over all gradients. On CUDA only the loud pass is watched, as nothing may be added to
    the times.
    """

    name = "norms"
    passes = frozenset({"warmup", "quiet", "loud", "values"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._numbers: dict[int, tuple[int, weakref.ref[Optimizer]]] = {}
        self._given = 0
        self._before_clipping: list[tuple[set[int], torch.Tensor]] = []
        self._seen: list[tuple[NormRow, torch.Tensor]] = []
        """Each with its norm, which stays on its device until the pass is over."""

    def start(self) -> None:
        """Watch clipping, and the unscaling that makes its norm one of scaled gradients."""
        if self.context.device.native and self.context.pass_name != "loud":
            return
        self.watching = True
        watch_clipping(self._patches, self._clips)
        self._patches.around(
            GradScaler, "unscale_", before=lambda *_, **__: self._before_clipping.clear()
        )

    def step_end(self) -> None:
        """Norms of clipping belong to the step that they were computed in."""
        self._before_clipping.clear()

    def stop(self) -> None:
        super().stop()
        self._before_clipping.clear()
        seen, self._seen = self._seen, []
        for (row, _), norm in zip(seen, _to_floats([norm for _, norm in seen]), strict=True):
            row.norm = norm if math.isfinite(norm) else str(norm)
            self.context.add(row)

    # -- what happens ------------------------------------------------------------------------------

    def _due(self) -> bool:
        if not self.watching or not self.context.in_step:
            return False
        return self.context.pass_name != "quiet" or self.context.step % QUIET_EVERY == 0

    def _clips(self, parameters: Sequence[torch.Tensor], norm: torch.Tensor) -> None:
        if self._due():
            self._before_clipping.append(
                ({id(parameter) for parameter in parameters}, plain(norm.detach()).clone())
            )

    def before_optimizer(self, optimizer: Optimizer) -> None:
        if self._due():
            self._look(optimizer)

    def _look(self, optimizer: Optimizer) -> None:
        found_inf = getattr(optimizer, "found_inf", None)
        parameters = [each for each in parameters_of(optimizer) if each.grad is not None]
        number = self._number_of(optimizer)
        if not parameters or number is None or (found_inf is not None and bool(plain(found_inf))):
            return
        own = {id(each) for each in parameters} if self._before_clipping else set()
        norms = (norm for clipped, norm in reversed(self._before_clipping) if clipped & own)
        norm = next(norms, None)
        clipped = norm is not None
        if norm is None:
            norm = _norm([values_of(each.grad) for each in parameters if each.grad is not None])
            # of fused optimizers, which unscale by themselves
            scale = getattr(optimizer, "grad_scale", None)
            norm = norm if scale is None else norm / plain(scale)
        rate, base = _rates(optimizer)
        row = NormRow(
            step=self.context.step,
            global_step=self.context.global_step,
            optimizer=number,
            at=self.context.frames.here(),
            norm=0.0,
            clipped=clipped,
            rate=rate,
            base=base,
        )
        self._seen.append((row, norm))

    def _number_of(self, optimizer: Optimizer) -> int | None:
        number, known = self._numbers.get(id(optimizer), (0, None))
        if known is None or known() is not optimizer:
            if self._given >= OPTIMIZERS:
                return None
            number, self._given = self._given, self._given + 1
            self._numbers[id(optimizer)] = number, weakref.ref(optimizer)
            self.context.writer.touch("norms")
        return number


def _rates(optimizer: Optimizer) -> tuple[float, float]:
    """Its highest learning rate, and what a scheduler found that group at. A tensor is not read."""
    groups = [
        (float(group["lr"]), group.get("initial_lr"))
        for group in groups_of(optimizer)
        if isinstance(group.get("lr"), int | float)
    ]
    rate, base = max(groups, key=lambda each: each[0], default=(0.0, None))
    known = math.isfinite(rate) and isinstance(base, int | float) and math.isfinite(base)
    return (rate if math.isfinite(rate) else 0.0), (float(base) if known and base else 0.0)


@torch.no_grad()  # type: ignore[untyped-decorator]  # torch's own, without annotations
def _norm(gradients: list[torch.Tensor]) -> torch.Tensor:
    half = [each for each in gradients if each.dtype in _HALF]
    # in float16 it overflows at 65504
    norms = [torch.linalg.vector_norm(each, dtype=torch.float32) for each in half]
    if len(half) < len(gradients):
        norms += norms_of([each for each in gradients if each.dtype not in _HALF])
    together: torch.Tensor = torch.linalg.vector_norm(
        torch.stack([norm.to(norms[0].device, torch.float32) for norm in norms])
    )
    return together


def _to_floats(norms: list[torch.Tensor]) -> list[float]:
    """All of them at once: one host sync on a GPU."""
    if not norms:
        return []
    together = torch.stack([norm.to(norms[0].device, torch.float32).reshape(()) for norm in norms])
    return [float(norm) for norm in together.tolist()]
