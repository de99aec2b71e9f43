"""A tape of torch's functions as the program calls them: enough to compute a loss's end again."""

import os
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from auditor.capture.instruments.autograd_graph import Walk, node_of
from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.instruments.torch_private.tensors import version_of
from auditor.capture.probes.base import Context

MOST = 400
"""Calls that are kept, the newest ones: what they were given stays alive until the backward."""

EMBEDDINGS = 8
"""Calls of ``embedding`` that are kept beside them: a model begins with it."""

DEVICES = ("cpu", "cuda")

HOLDING = (torch.Tensor, tuple, list, dict)
"""What a result is that may hold tensors."""

HOOKING = frozenset({"register_hook", "retain_grad"})


@dataclass(slots=True, eq=False)
class TapedCall:
    """A function that made tensors with gradients on."""

    number: int
    function: Callable[..., Any]
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    results: tuple[torch.Tensor, ...]
    spot: tuple[CodeType, int] | None
    """The user's code that it ran for, and the line there."""
    at: int | None
    """The line as a number in ``sites``, of a call that :class:`FunctionTape` should place."""
    parents: tuple[tuple[torch.Tensor, int | None], ...]
    """The tensors that it was given, and the number of the call that had made each of them."""
    versions: tuple[int, ...]
    autocast: tuple[tuple[str, torch.dtype], ...] = ()
    beside: Any = None
    """What was noted of the frames around it."""

    @property
    def result(self) -> torch.Tensor:
        """What it made, the first of several."""
        return self.results[0]

    @property
    def gives_gradient(self) -> bool:
        """Its results belong to the graph."""
        return any(each.requires_grad for each in self.results)

    def argument(self, index: int, name: str, default: Any = None) -> Any:
        """What it was given there, by position or by name."""
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, default)


@dataclass
class TapeRequest:
    """Which calls get a place, and what is noted of the frames around them."""

    placed: Callable[[str, tuple[Any, ...]], bool]
    spotted: Callable[[str], bool] = lambda name: False
    """Further calls whose line is kept: a walk up the stack for each call costs time."""
    note: Callable[[str, tuple[Any, ...], dict[str, Any]], Any] = field(
        default=lambda name, args, kwargs: None
    )


class FunctionTape(TorchFunctionMode):
    """Keeps the newest calls of the thread that entered it. Results are the functions' own."""

    def __init__(
        self, context: Context, wanted: TapeRequest, on_error: Callable[[Exception], None]
    ) -> None:
        super().__init__()
        self._context = context
        self._wanted = wanted
        self._on_error = on_error
        self._process = os.getpid()
        self._count = 0
        self._made: dict[int, int] = {}
        self.calls: OrderedDict[int, TapedCall] = OrderedDict()
        self.embeddings: list[TapedCall] = []
        self.hooked = False
        """A hook was put on a tensor since the tape was cleared: a second gradient would run it."""
        self.live = True
        self.paused = False

    def clear(self) -> None:
        """Let go of everything."""
        self.calls.clear()
        self.embeddings.clear()
        self._made.clear()
        self.hooked = False

    def forget(self, ran: Walk) -> None:
        """Let go of the calls whose graph a backward frees, and of data that no other call needs."""
        if ran.capped:
            self.clear()
            return
        freed, wanted = set(ran.nodes), set[int | None]()
        for number, call in reversed(list(self.calls.items())):
            gone = any(node_of(each) in freed for each in call.results)
            if not gone and (call.gives_gradient or number in wanted):
                wanted.update(made for _, made in call.parents)
            else:
                self._remove(self.calls.pop(number))
        self.embeddings = [each for each in self.embeddings if each.number in self.calls]
        self.hooked = False

    def maker(self, tensor: torch.Tensor) -> TapedCall | None:
        """The call that made a tensor, as far back as the tape goes."""
        number = self._made.get(id(tensor))
        return None if number is None else self.calls.get(number)

    def maker_before(self, call: TapedCall, tensor: torch.Tensor) -> TapedCall | None:
        """The call that had made what another one was given: ``x.float()`` may give ``x`` back."""
        number = next((made for each, made in call.parents if each is tensor), None)
        return None if number is None else self.calls.get(number)

    def origin(
        self, user: TapedCall, tensor: torch.Tensor, through: Container[str]
    ) -> tuple[torch.Tensor, TapedCall | None]:
        """What a call was given, before calls of these names worked on it; and what made that."""
        made = self.maker_before(user, tensor)
        while made is not None and made.name in through and made.parents:
            user, tensor = made, made.parents[0][0]
            made = self.maker_before(user, tensor)
        return tensor, made

    def users(self, call: TapedCall) -> Iterator[TapedCall]:
        """The calls that were given what it made."""
        for each in self.calls.values():
            if any(number == call.number for _, number in each.parents):
                yield each

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        kept = type(result) is not torch.Size and isinstance(result, HOLDING)
        if not (kept and torch.is_grad_enabled()) and getattr(func, "__name__", "") not in HOOKING:
            return result  # most calls of a step: sizes, and what the optimizer does
        idle = not self.live or self.paused or not self._context.in_step
        if LOOKING.depth or idle or os.getpid() != self._process:
            return result
        try:
            with LOOKING:
                self._keep(func, args, kwargs, result)
        except Exception as error:  # the user's step continues despite our error
            self._on_error(error)
        return result

    def _keep(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        name = plain_name(func)
        if name in HOOKING:
            self.hooked = True
        results = tuple(tensors((result,)))
        if not results or not torch.is_grad_enabled():
            return
        self._count += 1
        given = tuple(tensors((args, kwargs)))
        placed = self._wanted.placed(name, given)
        frame, via = (
            self._context.frames.user_frame()
            if placed or self._wanted.spotted(name)
            else (None, None)
        )
        call = TapedCall(
            number=self._count,
            function=func,
            name=name,
            args=replaced(tuple(args), lambda each: each),
            kwargs=replaced(kwargs, lambda each: each),
            results=results,
            spot=None if frame is None else (frame.f_code, frame.f_lineno or 0),
            at=self._context.frames.number(frame, via) if placed and frame is not None else None,
            parents=tuple((each, self._made.get(id(each))) for each in given),
            versions=tuple(map(version, given)),
            autocast=_autocast(),
            beside=self._wanted.note(name, tuple(args), kwargs) if placed else None,
        )
        self.calls[call.number] = call
        if name == "embedding" and len(self.embeddings) < EMBEDDINGS:
            self.embeddings.append(call)
        for each in results:
            self._made[id(each)] = call.number
        while len(self.calls) > MOST:
            self._drop()

    def _drop(self) -> None:
        _, oldest = self.calls.popitem(last=False)
        self._remove(oldest)

    def _remove(self, call: TapedCall) -> None:
        for each in call.results:
            if self._made.get(id(each)) == call.number:
                del self._made[id(each)]


def plain_name(func: Any) -> str:
    """``sub`` of ``Tensor.__rsub__``; of an attribute its own name."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", name)
    plain = name.strip("_") if name.startswith("__") else name
    return ALIASES.get(plain, plain)


ALIASES = {
    "rsub": "sub",
    "isub": "sub",
    "subtract": "sub",
    "radd": "add",
    "iadd": "add",
    "rmul": "mul",
    "imul": "mul",
    "multiply": "mul",
    "truediv": "div",
    "rtruediv": "div",
    "itruediv": "div",
    "rdiv": "div",
    "true_divide": "div",
    "divide": "div",
}
"""Other names of the same operation."""


def version(tensor: torch.Tensor) -> int:
    """How often it was written in place; 0 of one that does not count."""
    return 0 if tensor.is_inference() else version_of(tensor)


def only_axis(tensor: torch.Tensor, size: int) -> int | None:
    """The only dimension of this size; None without one, or with several."""
    axes = [axis for axis, each in enumerate(tensor.shape) if each == size]
    return axes[0] if len(axes) == 1 else None


def replaced(value: Any, by: Callable[[torch.Tensor], Any], depth: int = 4) -> Any:
    """A copy of the value with other tensors in it."""
    if isinstance(value, torch.Tensor):
        return by(value)
    if depth and type(value) in (list, tuple):
        return type(value)(replaced(each, by, depth - 1) for each in value)
    if depth and type(value) is dict:
        return {key: replaced(each, by, depth - 1) for key, each in value.items()}
    return value


def _autocast() -> tuple[tuple[str, torch.dtype], ...]:
    return tuple(
        (device, torch.get_autocast_dtype(device))
        for device in DEVICES
        if torch.is_autocast_enabled(device)
    )
