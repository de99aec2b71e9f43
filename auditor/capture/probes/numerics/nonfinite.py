"""At which step did values stop being finite? One cheap look after each, one row at most."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import optim
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.module_stack import by_largest, live_modules
from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.tensors import flatten, norms, stored_values
from auditor.capture.instruments.torch_private.training import BatchNorm
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.optim.optimizer_hooks import OptimizerSteps
from auditor.recordings.schema.numerics import BadTensor, NonfiniteRow, NormBufferRow


def statistics_of(modules: Iterable[torch.nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    """Running means and variances of these batch norms, by name, with values that can be read."""
    for module in modules:
        for name in ("running_mean", "running_var"):
            buffer = getattr(module, name, None)
            if not isinstance(buffer, torch.Tensor) or type(plain(buffer)) is not torch.Tensor:
                continue
            if not plain(buffer).is_meta:
                yield name, buffer


def finite(buffer: torch.Tensor) -> bool:
    """Whether all of its values are."""
    return bool(torch.isfinite(plain(buffer)).all())


class NormBuffersProbe(Probe):
    """Writes ``buffers``: one row, at the first step that ends with such a buffer."""

    name = "buffers"
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._ran: WeakKeyDictionary[torch.nn.Module, int] = WeakKeyDictionary()
        self._told = False

    def start(self) -> None:
        if BatchNorm is None:
            return  # the part stays missing, so that it is not taken for clean
        super().start()
        self._patches.around(BatchNorm, "forward", before=self._runs)

    def stop(self) -> None:
        super().stop()
        self._ran.clear()

    def _runs(self, module: Any, *_: Any, **__: Any) -> None:
        if self._told or not self.context.in_step or not module.training:
            return
        at = self.context.frames.here()
        if at is not None:
            self._ran[module] = at

    def step_end(self) -> None:
        for module, at in list(self._ran.items()) if not self._told else ():
            bad = [each for each in statistics_of([module]) if not finite(each[1])]
            if bad:
                name, buffer = bad[0]
                value = "nan" if bool(torch.isnan(plain(buffer)).any()) else "inf"
                owner = type(module).__name__
                self.context.add(NormBufferRow(at=at, owner=owner, buffer=name, value=value))
                self._told = True
                break
        self._ran.clear()


SMALL = 8192
"""Elements up to which a copy into one buffer is cheaper than a reduction of its own."""

HANDS_ON = frozenset(
    getattr(optim, name)
    for name in ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Adagrad")
)
"""Optimizers whose step with a non-finite gradient always leaves a non-finite parameter (``inf /
inf`` is NaN): it is enough to look at the parameters. Of any other (by signs, as Rprop and Lion)
the gradients are looked at too."""

ON_CUDA = frozenset({"loud", "values", "replay"})
"""Passes with a look at each step on CUDA, where a look is a read; elsewhere it takes 5 % of a
launch-bound step, outside of its time.
"""

NAMED = 5
"""Bad tensors that the row describes; the rest are counted."""


class Stepped(OptimizerSteps):
    """The optimizers that have stepped since :meth:`take` was called last."""

    def __init__(self) -> None:
        super().__init__(after=self._after_step)
        self._found: dict[int, tuple[Optimizer, torch.Tensor | None]] = {}

    def _after_step(self, optimizer: Optimizer) -> None:
        self._found[id(optimizer)] = optimizer, getattr(optimizer, "found_inf", None)

    def take(self) -> list[tuple[Optimizer, torch.Tensor | None]]:
        """Those optimizers, with GradScaler's flag where they skip updates themselves (fused)."""
        found, self._found = [*self._found.values()], {}
        return found


@dataclass(frozen=True)
class Bad:
    """A parameter that is not finite, or one whose gradient is not, or a batch norm's buffer."""

    what: Literal["gradient", "parameter", "buffer"]
    parameter: torch.Tensor
    place: str
    """``group 0, parameter 3`` of its optimizer; of a buffer its name."""

    @property
    def tensor(self) -> torch.Tensor:
        """What is not finite."""
        grad = self.parameter.grad if self.what == "gradient" else None
        return self.parameter if grad is None else grad


class NonfiniteProbe(Probe):
    """Writes one row of ``nonfinite``, at the first step that left a parameter or a gradient
    non-finite, and one at the first that left a batch norm's statistics so while these were finite.

    Gradients count only where an optimizer stepped with them: when GradScaler skips a step they are
    infinite on purpose. The part stays absent until the first optimizer has stepped, so that a step
    without one is *not looked at*. With CUDA only the loud pass is watched, since each look is a
    read on the host.
    """

    name = "finite"
    parts = ("nonfinite",)
    passes = frozenset(
        "warmup quiet anomaly_off eager_held compiled_again loud values replay".split()
    )
    in_rehearsals = True
    after = ("birth",)  # which leaves its watch before this one looks

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._stepped = Stepped()
        self._last_good = -1
        self._told = False
        self._norms: WeakSet[torch.nn.Module] = WeakSet()
        self._norms_seen: WeakSet[torch.nn.Module] = WeakSet()
        self._norms_told = False

    def install(self) -> None:
        self._always.on_undo(self._stepped.uninstall)
        self._stepped.install()

    def start(self) -> None:
        """Find the batch norms that exist. Statistics that were bad before are ignored."""
        if BatchNorm is None or self._norms_told or not self._looks():
            return
        norms = [each for each in live_modules() if isinstance(each, BatchNorm)]
        new = [each for each in norms if each not in self._norms_seen]
        self._norms_seen.update(new)
        bad = {id(each.parameter) for each in bad_statistics(new)}
        self._norms.update(
            each for each in new if not bad.intersection(id(b) for _, b in statistics_of([each]))
        )

    def step_end(self) -> None:
        if self._looks():
            self._look()
        else:
            self._stepped.take()

    def _look(self) -> None:
        stepped = self._stepped.take()
        if self._told:
            return
        if stepped:
            self.context.writer.touch("nonfinite")
        bad = bad_tensors(stepped) if stepped else []
        self._told = bool(bad)
        if not bad and not self._norms_told:  # GradScaler may skip the very step that spoils them
            bad = bad_statistics(self._norms)
            self._norms_told = bool(bad)
        if bad:
            self.context.add(self._row(bad))
        if stepped and not self._told:
            self._last_good = self.context.global_step

    def _looks(self) -> bool:
        return self.context.pass_name in ON_CUDA or not self.context.device.native

    def stop(self) -> None:
        """A step that raised after its optimizer had stepped never reached its end: look now."""
        if not self.context.device.native:
            self._look()

    def _row(self, bad: list[Bad]) -> NonfiniteRow:
        same = [each for each in bad if each.what == bad[0].what]
        names = names_of([each.parameter for each in same[:NAMED]])
        described = [
            BadTensor(
                name=names.get(id(each.parameter), each.place),
                shape=list(each.tensor.shape),
                value=value_of(each.tensor),
            )
            for each in same[:NAMED]
        ]
        now, good = self.context.global_step, self._last_good
        return NonfiniteRow(
            global_step=now, last_good=good, what=bad[0].what, tensors=described, n=len(same)
        )


def bad_tensors(stepped: Sequence[tuple[Optimizer, torch.Tensor | None]]) -> list[Bad]:
    """Non-finite gradients, then non-finite parameters, of optimizers that stepped."""
    tensors: list[torch.Tensor] = []
    for optimizer, skipped in stepped:
        parameters = parameters_of(optimizer)
        tensors += parameters
        if type(optimizer) not in HANDS_ON and not _skipped(skipped):
            tensors += [
                values_of(parameter.grad) for parameter in parameters if parameter.grad is not None
            ]
    if _looks_finite([plain(tensor) for tensor in tensors]):
        return []
    gradients = [
        bad
        for optimizer, skipped in stepped
        if not _skipped(skipped)
        for bad in _exactly(optimizer, "gradient")
    ]
    return gradients + [bad for optimizer, _ in stepped for bad in _exactly(optimizer, "parameter")]


def bad_statistics(norms: Iterable[torch.nn.Module]) -> list[Bad]:
    """Running means and variances of these batch norms that are not finite."""
    found = list(statistics_of(norms))
    if not found or _looks_finite([plain(buffer) for _, buffer in found]):
        return []
    return [Bad("buffer", buffer, name) for name, buffer in found if not finite(buffer)]


def _skipped(found_inf: torch.Tensor | None) -> bool:
    return found_inf is not None and bool(plain(found_inf))


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Its parameters that are plain, trainable and of floating point."""
    return [
        parameter
        for group in optimizer.param_groups
        for parameter in group["params"]
        if _plain(parameter)
    ]


def _exactly(optimizer: Optimizer, what: Literal["gradient", "parameter"]) -> Iterator[Bad]:
    """The slow look, which huge but finite values do not deceive."""
    for g, group in enumerate(optimizer.param_groups):
        for p, parameter in enumerate(group["params"]):
            tensor = parameter.grad if what == "gradient" else parameter.detach()
            if (
                tensor is not None
                and _plain(parameter)
                and not bool(torch.isfinite(values_of(tensor)).all())
            ):
                yield Bad(what, parameter, f"group {g}, parameter {p}")


@torch.no_grad()  # type: ignore[untyped-decorator]  # torch's own, without annotations
def _looks_finite(tensors: Sequence[torch.Tensor]) -> bool:
    """False if anything is non-finite, or a sum overflows: rare enough to look twice."""
    small = [tensor for tensor in tensors if tensor.numel() <= SMALL and not tensor.is_cuda]
    total = 0.0
    if small:
        total += float(flatten(small).sum(dtype=torch.float32))
    if len(small) < len(tensors):
        large = [tensor for tensor in tensors if tensor.numel() > SMALL or tensor.is_cuda]
        each = norms_of(large)
        total += float(torch.stack([norm.to(each[0].device, torch.float32) for norm in each]).sum())
    return math.isfinite(total)


def norms_of(tensors: list[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Euclidean norm of each, in its own dtype and on its own device."""
    return norms(tensors)  # type: ignore[no-any-return]


_PLAIN = (torch.nn.Parameter, torch.Tensor)


def _plain(tensor: torch.Tensor) -> bool:
    """Without sharded and wrapped parameters (operators may talk to others) and frozen ones."""
    return (
        type(plain(tensor)) in _PLAIN
        and tensor.requires_grad
        and tensor.dtype.is_floating_point
        and not tensor.is_meta
    )


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a sparse one's values; on the host if the device is a shadow."""
    tensor = plain(tensor)
    return stored_values(tensor) if tensor.layout is torch.sparse_coo else tensor


def value_of(tensor: torch.Tensor) -> Literal["nan", "inf"]:
    """What is wrong with a non-finite tensor; a NaN is worse than an infinity."""
    return "nan" if bool(torch.isnan(values_of(tensor.detach())).any()) else "inf"


def names_of(parameters: Iterable[torch.Tensor]) -> dict[int, str]:
    """Qualified names by ``id``. Slow: asks all live objects."""
    return {number: name.partition(".")[2] for number, name in homes_of(parameters).items()}


def homes_of(parameters: Iterable[torch.Tensor]) -> dict[int, str]:
    """Names that begin with the module's class: ``Model.body.weight``; only modules' parameters."""
    wanted = {id(parameter) for parameter in parameters}
    found = by_largest(lambda root: [*root.named_parameters(), *root.named_buffers()])
    return {
        number: f"{type(root).__name__}.{name}"
        for number, (root, name) in found.items()
        if number in wanted
    }
