"""What the step is given and does not read: an argument of a function, a part of a batch that is
unpacked; and writes that go into a copy.

The bytecode of a function says which of its arguments it never loads, and torch's functions say of
the step which tensors anything was computed from. Only what neither reads is told.
"""

from __future__ import annotations

import ast
import dis
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from auditor.capture.instruments.dispatch_modes import leave_function
from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.sync.reads_log import nodes_of, statement

from ..rows import UnreadRow
from .function_tape import plain_name

LOOKS = frozenset(
    "shape size dim ndim numel device dtype layout is_cuda requires_grad grad_fn grad is_leaf data_ptr "
    "element_size stride is_contiguous len repr str format hash del_ is_floating_point names".split()
)
"""Functions that say something of a tensor without its values."""

MOVES = frozenset("to cuda cpu pin_memory contiguous clone detach float long int bool half".split())
"""Functions whose result has the values that they are given."""

COMPARES = frozenset("eq ne lt le gt ge logical_not bitwise_not invert arange".split())
"""Functions that make masks."""

FLOORS = frozenset({"floordiv", "floor_divide"})
"""Functions that give whole numbers: one and the same for all, where what divides is too large."""

MASKS = 64
"""Masks of a step that are kept to be compared."""

SAYS_LENGTH = re.compile(r"mask|len|pad|valid|weight", re.IGNORECASE)
"""In the name of what a batch has beside its values. Its other parts may be for other programs."""

OPAQUE = frozenset({"locals", "vars", "eval", "exec"})
"""Functions that read a variable whose name the bytecode does not show."""

MODULE_CALL = torch.nn.Module.__call__.__code__.co_filename


class Unused(NamedTuple):
    """Names of a function that it never loads."""

    parameters: tuple[str, ...]
    variables: tuple[str, ...]


@lru_cache(maxsize=4096)
def unused_in(code: CodeType) -> Unused:
    """The parameters, and the variables named as a mask or a weight, that code never loads.
    Names in ``_`` are left out, as what is deleted and what an inner function takes.
    """
    loaded, stored = set(code.co_cellvars), set[str]()
    for each in dis.get_instructions(code):
        if not each.opname.startswith(("LOAD_FAST", "STORE_FAST", "DELETE_FAST")):
            continue
        names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
        if each.opname == "STORE_FAST_LOAD_FAST":
            stored.add(names[0])
            loaded.add(names[-1])
        elif each.opname.startswith("STORE_FAST"):
            stored.update(names)
        else:
            loaded.update(names)
    if OPAQUE & set(code.co_names):
        return Unused((), ())
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return Unused(
        tuple(name for name in given if name not in loaded and not name.startswith("_")),
        tuple(
            name
            for name in sorted(stored - loaded - set(given))
            if SAYS_LENGTH.search(name) and not name.startswith("_")
        ),
    )


class _Given(NamedTuple):
    """A tensor under a name that is never loaded."""

    kind: str
    code: CodeType
    name: str
    value: torch.Tensor
    beside: tuple[torch.Tensor, ...]
    """Masks and lengths that the function holds beside it."""


class _Uses(TorchFunctionMode):
    """Which tensors the step's functions are given."""

    def __init__(self, probe: UnreadProbe) -> None:
        super().__init__()
        self.probe, self.live = probe, True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.live and not LOOKING.depth and self.probe.in_step:
            try:
                with LOOKING:
                    self.probe.used_by(plain_name(func), args, kwargs, result)
            except Exception as error:  # the user's step goes on whatever we got wrong
                self.probe.missed(error)
        return result


class UnreadProbe(Probe):
    """Writes ``unread``. It watches the gradient pass, in which no time is taken: Python tells it of
    each call of the step's thread.
    """

    name = "unread"
    parts = ("unread",)
    passes = frozenset({"gradients"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._clear()
        self._profiles = False
        self._varied: dict[int, bool] = {}
        """Divisions by line: whether one gave different numbers."""
        self._again: set[int] = set()
        self._seen: set[tuple[str, int, str]] = set()

    def _clear(self) -> None:
        self._used: set[int] = set()
        self._source: dict[int, int] = {}
        self._held: list[torch.Tensor] = []
        self._masks: list[torch.Tensor] = []
        self._copies: dict[int, torch.Tensor] = {}
        self._given: list[_Given] = []
        self._counted: set[int] = set()

    def start(self) -> None:
        """Enter the mode; the calls are watched from the step's begin on."""
        super().start()
        mode = _Uses(self)
        mode.__enter__()  # type: ignore[no-untyped-call]  # torch's own, without annotations
        self._patches.on_undo(lambda: leave_function(mode))

    def step_begin(self) -> None:
        super().step_begin()
        if sys.getprofile() is None:
            sys.setprofile(self._event)
            self._profiles = True

    def step_end(self) -> None:
        """Tell of what nothing read. A loop that takes the steps is still running."""
        self._leave()
        for frame in self.context.frames.user_frames(sys._getframe()):
            self._returns(frame)
        for given in self._given:
            key = given.kind, id(given.code), given.name
            if key not in self._seen and self._is_unread(given):
                self._seen.add(key)
                line = line_of(given.code, given.name)
                self._tell(given.kind, self._site(given.code, line), given.name, given.code.co_name)
        self._clear()

    def stop(self) -> None:
        """Leave both. Divisions are told that gave one number on both steps."""
        self._leave()
        for at in self._again:
            if not self._varied.pop(at, True):
                self._tell("constant", at, "", "//")
        super().stop()
        self._clear()

    def _leave(self) -> None:
        if self._profiles:
            self._profiles = False
            if sys.getprofile() == self._event:
                sys.setprofile(None)

    # -- calls -------------------------------------------------------------------------------------

    def _event(self, frame: FrameType, event: str, _: Any) -> None:
        if event not in ("call", "return") or LOOKING.depth:
            return
        try:
            if not self.context.frames.is_user_frame(frame):
                return
            unused = unused_in(frame.f_code)
            if event == "return":
                if unused.variables:
                    self._returns(frame)
            elif unused.parameters and self._is_called_by_program(frame):
                self._holds(frame, "parameter", unused.parameters)
        except Exception as error:  # the user's step goes on whatever we got wrong
            self.missed(error)

    def _is_called_by_program(self, frame: FrameType) -> bool:
        """Hooks and functions of autograd are given what their caller has."""
        caller = frame.f_back
        return caller is not None and (
            caller.f_code.co_filename == MODULE_CALL or self.context.frames.is_user_frame(caller)
        )

    def _returns(self, frame: FrameType) -> None:
        self._holds(frame, "variable", unused_in(frame.f_code).variables)

    def _holds(self, frame: FrameType, kind: str, names: tuple[str, ...]) -> None:
        values = frame.f_locals if names else {}
        for name in names:
            value = values.get(name)
            if isinstance(value, torch.Tensor) and value.numel() > 1:
                beside = tuple(
                    each
                    for other, each in values.items()
                    if other != name and SAYS_LENGTH.search(other)
                    for each in tensors((each,))
                )
                self._given.append(_Given(kind, frame.f_code, name, value, beside))

    # -- uses --------------------------------------------------------------------------------------

    def used_by(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """A function was given these, and gave this."""
        given = tensors((args, kwargs or {}))
        if name in LOOKS or not (given or name == "arange"):
            return
        if name in MOVES and isinstance(result, torch.Tensor):
            self._held += (given[0], result)
            self._source[id(result)] = self._origin(given[0])
            return
        self._used.update(map(self._origin, given))
        if name == "arange":
            self._counted.add(id(result))
            self._held.append(result)
        elif name in FLOORS and isinstance(result, torch.Tensor) and result.numel() > 1:
            self._floors(given[0], result)
        if name in COMPARES and isinstance(result, torch.Tensor) and len(self._masks) < MASKS:
            self._masks.append(result)
        elif name == "getitem" and isinstance(result, torch.Tensor):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(each, (torch.Tensor, list)) for each in index):
                self._copies = {id(result): result}  # the newest: the write follows it
        elif name.endswith("_") and id(given[0]) in self._copies:
            self._writes(name)

    def _floors(self, given: torch.Tensor, result: torch.Tensor) -> None:
        """Positions that are counted may be fewer than what divides them."""
        at = self.context.frames.here()
        if at is None or self._origin(given) in self._counted or given.numel() != result.numel():
            return
        one = bool((given == given.flatten()[0]).all())
        varied = not one and bool((result != result.flatten()[0]).any())
        if at in self._varied and self.context.step > 0:
            self._again.add(at)
        self._varied[at] = self._varied.get(at, False) or varied or one

    def _origin(self, tensor: torch.Tensor) -> int:
        return self._source.get(id(tensor), id(tensor))

    def _writes(self, name: str) -> None:
        """Tell of ``x[index].zero_()``, whose result nobody holds."""
        frame, via = self.context.frames.user_frame()
        if frame is None:
            return
        file, line = frame.f_code.co_filename, frame.f_lineno
        first, last = statement(file, line)
        for node in nodes_of(file):
            if not (isinstance(node, ast.Expr) and first <= node.lineno <= last):
                continue
            call = node.value
            if (
                isinstance(call, ast.Call)
                and isinstance(call.func, ast.Attribute)
                and call.func.attr == name
                and isinstance(call.func.value, ast.Subscript)
            ):
                key = "copy", frame.f_lasti, frame.f_code.co_name
                if key not in self._seen:
                    self._seen.add(key)
                    what = ast.unparse(call.func.value)
                    self._tell("copy", self.context.frames.number(frame, via), what, name)

    # -- judging -----------------------------------------------------------------------------------

    def _is_unread(self, given: _Given) -> bool:
        """Nothing was computed from it, and nothing that the step computed says the same."""
        value = given.value.detach()
        if self._origin(given.value) in self._used or type(value) not in PLAIN:
            return False
        if any(self._origin(each) in self._used for each in given.beside if each is not value):
            return False
        if value.layout is not torch.strided or bool((value == value.flatten()[0]).all()):
            return False  # what is the same everywhere changes nothing
        return not any(says_the_same(mask, value) for mask in self._masks)

    def _site(self, code: CodeType, line: int) -> int:
        return self.context.frames.site(code.co_filename, line, code.co_qualname)

    def _tell(self, kind: str, at: int, name: str, function: str) -> None:
        self.context.add(UnreadRow(at=at, kind=kind, name=name, function=function))


PLAIN = (torch.Tensor, torch.nn.Parameter)


def says_the_same(mask: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether a mask that the step computed holds what a mask, or lengths, would have said."""
    if mask.dtype is not torch.bool or mask.device != value.device:
        return False
    if mask.numel() == value.numel():
        one, two = mask.flatten(), value.flatten().bool()
        return torch.equal(one, two) or torch.equal(~one, two)
    if value.dim() == 1 and mask.dim() > 1 and len(mask) == len(value):
        counts = mask.flatten(1).sum(1)
        size = mask.flatten(1).shape[1]
        return any(torch.equal(each, value.to(each)) for each in (counts, size - counts))
    return False


def line_of(code: CodeType, name: str) -> int:
    """Where a parameter stands in its function's head, or where a variable gets its value."""
    for node in _named(code):
        if isinstance(node, ast.arg) and node.arg == name:
            return node.lineno
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return node.lineno
    return code.co_firstlineno


def _named(code: CodeType) -> Iterator[ast.AST]:
    for node in nodes_of(code.co_filename):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first == code.co_firstlineno and node.name == code.co_name:
                yield from ast.walk(node)
