"""The stream of operators that run: one dispatch mode, to which probes subscribe."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from types import FrameType
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch

from auditor.capture.instruments.dispatch_modes import (
    leave_dispatch,
    run_compiled_code_eagerly,
    run_operator,
)
from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.instruments.torch_private import dispatch
from auditor.capture.instruments.torch_private.autograd import current_node
from auditor.capture.instruments.torch_private.dispatch import DispatchMode, schema_of
from auditor.capture.instruments.torch_private.look_up import Missing, require
from auditor.capture.probes.base import Context, Probe


class OperatorProbe(Probe):
    """A probe that watches single operators in the calling thread: the one that runs the step."""

    def start(self) -> None:
        """Begin to watch; what was begun is taken back where that fails."""
        self.stop()
        try:
            run_compiled_code_eagerly(self._patches)
            self.watch()
        except BaseException:
            self._patches.undo()
            raise

    def watch(self) -> None:
        """Make the watch of this pass and :meth:`enter` it."""

    def enter(self, watch: Subscriber) -> None:
        """Subscribe a watch to the stream of operators; it leaves when the patches are undone."""
        self._patches.on_undo(subscribe(self.context, watch))
        self.watches_operators = True
        self._patches.on_undo(lambda: setattr(self, "watches_operators", False))

    def here(self) -> int | None:
        """The user's line that runs now."""
        return site_of_operator(self.context)


# -- one operator ----------------------------------------------------------------------------------

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "linear", "embedding", "mv", "dot")
OVERWRITES = frozenset(
    """
    fill zero copy foreach_copy normal uniform exponential random bernoulli geometric log_normal
    cauchy
    """.split()
)
"""Operators that write a tensor without reading what it held."""

PRODUCT_PARTS = ("convolution", "scaled_dot_product", "lstm", "gru", "norm_backward")


class Operator:
    """What is constant about an operator. One of a higher order has no schema and no name."""

    def __init__(self, func: Any) -> None:
        self.func = func
        self.schema = schema_of(func)
        full_name: str = "" if self.schema is None else self.schema.name
        space, _, own = full_name.partition("::")
        self.namespace, self.own_name, self.name = space, own, own.strip("_")
        arguments, returns = (
            ((), ()) if self.schema is None else (self.schema.arguments, self.schema.returns)
        )
        self.view = any(r.alias_info is not None and not r.alias_info.is_write for r in returns)
        self.product = self.name in PRODUCTS or any(part in self.name for part in PRODUCT_PARTS)
        self._writes = [
            (number, each.name)
            for number, each in enumerate(arguments)
            if each.alias_info is not None and each.alias_info.is_write
        ]

    @property
    def writes(self) -> bool:
        """True if it changes what it is given."""
        return bool(self._writes)

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """Tensors that a call writes into."""
        if not self._writes:
            return []
        return tensors(
            args[number] if number < len(args) else kwargs.get(name)
            for number, name in self._writes
        )


T = TypeVar("T")


class Once(Generic[T]):
    """A property of the first question: functools' own takes a lock, with a frame of its own."""

    def __init__(self, answer: Callable[[Any], T]) -> None:
        self._answer = answer
        self.__doc__ = answer.__doc__

    def __get__(self, call: Any, owner: type) -> T:
        known = call.__dict__[self._answer.__name__] = self._answer(call)
        return known


class Call:
    """One call of an operator. Each question about it is answered once, for whoever asks."""

    def __init__(
        self, context: Context, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._context = context
        self.operator = operator
        self.args = args
        self.kwargs = kwargs
        self.given = tensors((*args, *kwargs.values()) if kwargs else args)
        """All tensors among its arguments."""
        self.written = operator.written(args, kwargs)
        """Those that it writes into."""
        self.backward = current_node() is not None
        """It runs for a node of a backward."""
        self.result: Any = None
        """What the program gets, once it has run; a subscriber that plays a device replaces it."""

    @Once
    def made(self) -> list[torch.Tensor]:
        """All tensors of its result."""
        return tensors((self.result,))

    @Once
    def graph(self) -> bool:
        """Its result has a gradient."""
        return torch.is_grad_enabled() and any(each.requires_grad for each in self.given)

    @Once
    def frames(self) -> tuple[FrameType | None, FrameType | None]:
        """The innermost frame of the user's, and the innermost of a library below it."""
        return self._context.frames.user_frame()

    @Once
    def site(self) -> int | None:
        """The user's line that it runs for; None outside of a step."""
        return _site(self._context, *self.frames) if self._context.in_step else None

    @property
    def own_site(self) -> int | None:
        """The user's line if it calls the operator itself."""
        if not self._context.in_step or not _direct(self._context, *self.frames):
            return None
        return self._context.frames.number(self.frames[0])  # type: ignore[arg-type]


# -- where it runs ---------------------------------------------------------------------------------

_WRAPPERS = tuple(
    os.path.join(os.sep, "torch", part) for part in ("_dynamo" + os.sep, "_compile.py", "_ops.py")
)
"""Parts of the paths of what torch wraps around dispatch modes and operators."""

_THIN = tuple(
    os.path.join(os.sep, "torch", *path)
    for path in (("_tensor.py",), ("functional.py",), ("nn", "functional.py"))
)
"""Ends of the paths of what torch has in Python around single operators."""


def site_of_operator(context: Context) -> int | None:
    """The user's line that runs now; None outside of a step."""
    return _site(context, *context.frames.user_frame()) if context.in_step else None


def _site(context: Context, frame: FrameType | None, via: FrameType | None) -> int | None:
    if frame is None:
        return None
    while via is not None and via is not frame:
        file = via.f_code.co_filename
        if not _is_wrapper(file) and not context.frames.is_own(file):
            break
        via = via.f_back
    return context.frames.number(frame, None if via is frame else via)


def _direct(context: Context, frame: FrameType | None, via: FrameType | None) -> bool:
    while frame is not None and via is not None and via is not frame:
        file = via.f_code.co_filename
        known = _is_wrapper(file) or context.frames.is_own(file) or file.endswith(_THIN)
        if not known and not file.startswith("<"):
            return False
        via = via.f_back
    return frame is not None


_wrappers: dict[str, bool] = {}


def _is_wrapper(file: str) -> bool:
    known = _wrappers.get(file)
    if known is None:
        known = _wrappers[file] = any(part in file for part in _WRAPPERS)
    return known


# -- the stream ------------------------------------------------------------------------------------

FLATTENED = "__tensor_flatten__"
"""What classes of tensors that are made of others have (torch, "Subclass wrappers")."""


class Subscriber:
    """What a probe does with the operators that it wants. Results are those of the operators,
    whatever we get wrong: what a subscriber raises is given to ``on_error``, and the others go on.
    """

    inside: ClassVar[bool] = False
    """True if it wants the operators inside a tensor made of others (DTensor), as all then do."""
    in_backward: ClassVar[bool] = True
    """False if it wants no operator that runs for a node of a backward."""

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        self.on_error = on_error

    def wants(self, operator: Operator) -> bool:
        """Whether it is asked at each call of the operator; decided once."""
        return True

    def before(self, call: Call) -> Any:
        """A call is about to run. :meth:`after` is given what this returns, unless None."""

    def after(self, call: Call, noted: Any) -> None:
        """The call has run."""

    def raised(self, noted: Any) -> None:
        """The call has raised what the program will see."""


class Watchers(NamedTuple):
    """Watches that want an operator, and those that want it in a backward, too."""

    operator: Operator
    everywhere: tuple[Subscriber, ...]
    in_backward: tuple[Subscriber, ...]


Waiting = list[tuple[Subscriber, Any]]
"""Subscribers that look again when the call has run, and what they noted."""


class OperatorStream(DispatchMode):
    """Shows each operator that this thread runs to its subscribers, in the order in which they
    came. Entered with the first of them and left with the last; then it is over.
    """

    supports_higher_order_operators = True

    def __init__(self, context: Context) -> None:
        require(*dispatch.MODES_NEED)
        if not dispatch.HAS_SCHEMAS:
            raise Missing("torch._ops.OpOverload._schema")
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own, without annotations
        self._context = context
        self._subscribers: tuple[Subscriber, ...] = ()
        self._asked: dict[Any, Watchers] = {}
        self._inside = False
        self._process = os.getpid()
        self.live = True
        """False once it is over: it passes everything through."""

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Show it operators from now on; what this returns ends that."""
        if not self._subscribers:
            self.__enter__()  # type: ignore[no-untyped-call]
        self._show_to((*self._subscribers, subscriber))

        def leave() -> None:
            self._show_to(tuple(each for each in self._subscribers if each is not subscriber))
            if not self._subscribers and self.live:
                leave_dispatch(self)

        return leave

    def _show_to(self, subscribers: tuple[Subscriber, ...]) -> None:
        self._subscribers = subscribers
        self._asked = {}
        self._inside = any(each.inside for each in subscribers)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._inside and any(hasattr(each, FLATTENED) for each in types):
            return NotImplemented
        kwargs = kwargs or {}
        if LOOKING.depth or not self.live or os.getpid() != self._process:
            return run_operator(func, args, kwargs)
        asked = self._asked.get(func) or self._ask(func)
        if not asked.everywhere:
            return run_operator(func, args, kwargs)
        LOOKING.depth += 1  # as "with LOOKING", which takes a microsecond
        try:
            call, waiting = self._before(asked, args, kwargs)
        finally:
            LOOKING.depth -= 1
        try:
            call.result = run_operator(func, args, kwargs)
        except BaseException:
            _raised(waiting)
            raise
        if waiting:
            LOOKING.depth += 1
            try:
                _after(waiting, call)
            finally:
                LOOKING.depth -= 1
        self._context.freed.look()
        return call.result

    def _ask(self, func: Any) -> Watchers:
        operator = Operator(func)
        wanting: list[Subscriber] = []
        for each in self._subscribers:
            try:
                if operator.schema is not None and each.wants(operator):
                    wanting.append(each)
            except Exception as error:
                _say(each, error)
        in_backward = tuple(each for each in wanting if each.in_backward)
        asked = self._asked[func] = Watchers(operator, tuple(wanting), in_backward)
        return asked

    def _before(
        self, asked: Watchers, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Call, Waiting]:
        call, waiting = Call(self._context, asked.operator, args, kwargs), []
        for each in asked.in_backward if call.backward else asked.everywhere:
            try:
                noted = each.before(call)
            except Exception as error:  # the user's step continues
                _say(each, error)
            else:
                if noted is not None:
                    waiting.append((each, noted))
        return call, waiting


def _after(waiting: Waiting, call: Call) -> None:
    for each, noted in waiting:
        try:
            each.after(call, noted)
        except Exception as error:
            _say(each, error)


def _raised(waiting: Waiting) -> None:
    for each, noted in waiting:
        try:
            each.raised(noted)
        except Exception as error:
            _say(each, error)


def _say(subscriber: Subscriber, error: Exception) -> None:
    with contextlib.suppress(Exception):  # the disk may be full: the writer says so itself
        subscriber.on_error(error)


def subscribe(context: Context, subscriber: Subscriber) -> Callable[[], None]:
    """Show it the operators that this thread runs from now on, until what this returns is called.

    Raises Missing if this torch has no mode over operators.
    """
    if context.stream is None or not context.stream.live:
        context.stream = OperatorStream(context)
    return context.stream.subscribe(subscriber)
