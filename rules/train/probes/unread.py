"""What the step is given and does not read: an argument of a function, values that a division makes
equal; and writes that go into a copy.

The bytecode of a function says which of its arguments it never loads, and torch's functions say of
the step which tensors anything was computed from. Only what neither reads is told.
"""

from __future__ import annotations

import ast
import dis
import re
import sys
from functools import partial
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from auditor.capture.instruments.dispatch_modes import leave_function
from auditor.capture.instruments.live_objects import live_functions
from auditor.capture.instruments.monkeypatch import LOOKING, SWAPPED
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
"""Masks of a step that are kept to be compared. Other tensors are known by ``id`` alone, so that the
step needs no more memory: one that takes the place of another can only be called read."""

LARGEST = 1 << 20
"""Places of such a mask at most."""

SAYS_LENGTH = re.compile(r"mask|len|pad|valid", re.IGNORECASE)
"""In the name of what says the same as a mask."""

OPAQUE = frozenset({"locals", "vars", "eval", "exec"})
"""Functions that read a variable whose name the bytecode does not show."""

MODULE_CALL = torch.nn.Module.__call__.__code__.co_filename


def unused_in(code: CodeType) -> tuple[str, ...]:
    """Parameters that code never loads, but ``_``, deleted ones and what inner functions take."""
    given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    loaded = set(code.co_cellvars)
    for each in dis.get_instructions(code) if given else ():
        names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
        if each.opname == "STORE_FAST_LOAD_FAST":
            loaded.add(names[-1])
        elif each.opname.startswith(("LOAD_FAST", "DELETE_FAST")):
            loaded.update(names)
    if OPAQUE & set(code.co_names):
        return ()
    return tuple(name for name in given if name not in loaded and not name.startswith("_"))


class _Given(NamedTuple):
    """A tensor that a function is given under a name that it never loads."""

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
            except Exception as error:  # the user's step continues despite our error
                self.probe.missed(error)
        return result


class UnreadProbe(Probe):
    """Writes ``unread``: from parameters never loaded, and a mode over torch's functions."""

    name = "unread"
    passes = frozenset({"gradients"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._clear()
        self._varied: dict[int, bool] = {}
        """Divisions by line: whether one gave different numbers."""
        self._again: set[int] = set()
        self._seen: set[tuple[str, int, str]] = set()
        self._note_given = self.guarded(self._note)

    def _clear(self) -> None:
        self._used: set[int] = set()
        self._source: dict[int, int] = {}
        self._masks: list[torch.Tensor] = []
        self._copy = 0
        self._given: list[_Given] = []
        self._counted: set[int] = set()

    def start(self) -> None:
        super().start()
        mode = _Uses(self)
        mode.__enter__()  # type: ignore[no-untyped-call]  # torch's own, without annotations
        self._patches.on_undo(lambda: leave_function(mode))
        frames = self.context.frames
        for function in live_functions():
            if frames.is_of_library(function.__globals__):
                continue
            code = function.__code__
            named = function.__name__.isidentifier()  # no lambda
            if named and not code.co_freevars and frames.is_user(code.co_filename):
                names = unused_in(code)
                if names:
                    self._patches.code(function, partial(self._called, code, names))

    def step_end(self) -> None:
        for given in self._given:
            key = "parameter", id(given.code), given.name
            if key not in self._seen and self._is_unread(given):
                self._seen.add(key)
                code, line = given.code, line_of(given.code, given.name)
                at = self.context.frames.site(code.co_filename, line, code.co_qualname)
                self._tell("parameter", at, given.name, code.co_name)
        self._clear()

    def stop(self) -> None:
        """Leave both. Divisions are told that gave one number on both steps."""
        super().stop()
        for at in self._again:
            if not self._varied.pop(at, True):
                self._tell("constant", at, "", "//")
        self._again.clear()
        self._clear()

    # -- calls -------------------------------------------------------------------------------------

    def _called(
        self, code: CodeType, names: tuple[str, ...], original: Any, /, *args: Any, **kwargs: Any
    ) -> Any:
        """In the place of a function with such parameters, whatever they are called."""
        if self.in_step and not LOOKING.depth:
            values = {**dict(zip(code.co_varnames, args, strict=False)), **kwargs}
            self._note_given(code, names, values)
        return original(*args, **kwargs)

    def _note(self, code: CodeType, names: tuple[str, ...], values: dict[str, Any]) -> None:
        if not self._is_called_by_program():
            return
        for name in names:
            value = values.get(name)
            if isinstance(value, torch.Tensor) and value.numel() > 1:
                alike = [each for key, each in values.items() if SAYS_LENGTH.search(key)]
                beside = tuple(each for each in tensors(alike) if each is not value)
                self._given.append(_Given(code, name, value, beside))

    def _is_called_by_program(self) -> bool:
        """Hooks and functions of autograd are given what their caller has."""
        frames, caller = self.context.frames, sys._getframe(1)
        while caller.f_back is not None and (
            frames.is_own(caller.f_code.co_filename) or caller.f_code.co_filename == SWAPPED
        ):
            caller = caller.f_back
        return caller.f_code.co_filename == MODULE_CALL or frames.is_user_frame(caller)

    # -- uses --------------------------------------------------------------------------------------

    def used_by(self, name: str, args: Any, kwargs: Any, result: Any) -> None:
        """A function was given these, and gave this."""
        given = tensors((args, kwargs or {}))
        if name in LOOKS or not (given or name == "arange"):
            return
        if name in MOVES and isinstance(result, torch.Tensor):
            self._source[id(result)] = self._origin(given[0])
            return
        self._used.update(map(self._origin, given))
        if name == "arange":
            self._counted.add(id(result))
        elif name in FLOORS and isinstance(result, torch.Tensor) and result.numel() > 1:
            self._floors(given[0], result)
        if name in COMPARES and isinstance(result, torch.Tensor):
            if len(self._masks) < MASKS and result.numel() <= LARGEST:
                self._masks.append(result)
        elif name == "getitem" and isinstance(result, torch.Tensor):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if any(isinstance(each, (torch.Tensor, list)) for each in index):
                self._copy = id(result)  # the newest: the write follows it
        elif name.endswith("_") and id(given[0]) == self._copy:
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
        """Report ``x[index].zero_()``, whose result is not kept."""
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
        if any(self._origin(each) in self._used for each in given.beside):
            return False
        if value.layout is not torch.strided or bool((value == value.flatten()[0]).all()):
            return False  # what is the same everywhere changes nothing
        return not any(says_the_same(mask, value) for mask in self._masks)

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
    """Where a parameter stands in its function's head."""
    for node in nodes_of(code.co_filename):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if first == code.co_firstlineno and node.name == code.co_name:
                named = (each for each in ast.walk(node.args) if isinstance(each, ast.arg))
                return next((each.lineno for each in named if each.arg == name), first)
    return code.co_firstlineno
