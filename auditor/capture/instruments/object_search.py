"""From a user's variable to the tensors it holds: closures, attributes and containers."""

from __future__ import annotations

import contextlib
import dis
import functools
import gc
import inspect
import itertools
import sys
import types
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import CodeType, FrameType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any

import torch

from auditor.capture.instruments.assignment_sites import NO_FILE, TensorPath, Trail, spelled
from auditor.capture.instruments.autograd_graph import Node, node_of
from auditor.capture.instruments.live_objects import instances_of_user
from auditor.capture.instruments.torch_private.training import own_buffers, own_children, own_hooks
from auditor.capture.instruments.user_frames import Frames, outwards

DEPTH = 4
"""Levels of containers and attributes below a variable that are searched."""

LAST_ITEMS = 16_384
"""Items of a container that are looked at: the newest ones."""

VISITS = 20_000
"""Objects visited in one census: about 5 ms."""

LARGE = 64
"""A container with this many items, no graph and an unchanged length is read now and then."""

WEIGHED = frozenset({int, float, complex, str, bytes})
"""Values of which many are weighed."""

LOOK_AGAIN = 8
"""Censuses after which it is."""

_ATOMS = frozenset(
    (int, float, str, bytes, bool, complex, range, slice, torch.dtype, torch.device)
) | {type(None), type(Ellipsis)}
_OPAQUE = (
    *(ModuleType, type, torch.optim.Optimizer),
    *(types.BuiltinFunctionType, types.CodeType, types.TracebackType),
)
_MODULE_KEYS = frozenset(vars(torch.nn.Module()))
_SNAPSHOT_READERS = frozenset({"locals", "vars", "dir", "eval", "exec", "stack"})
"""Functions that read a frame's variables, where their name is no attribute's."""
_SNAPSHOT_METHODS = frozenset({"_getframe", "currentframe", "save_hyperparameters"})
"""Functions that read a frame's variables, when called as attributes of a module or object."""
_ITERATORS: frozenset[type] = frozenset(
    (
        *(enumerate, filter, map, zip, itertools.cycle, itertools.chain, itertools.islice),
        *(type(iter([])), type(iter(())), type(iter({})), type(iter({}.values()))),
    )
)
"""They hold others; ``cycle`` keeps all that it gave in a list, which only the collector names."""
LRU_CACHE: type = type(functools.cache(lambda: None))
_READER_MODULES = frozenset({"inspect", "builtins"})
"""Modules whose attributes they are."""


class ObjectSearch:
    """Searches what outlives a step for tensors that are ``wanted``: those that have a graph."""

    def __init__(
        self,
        frames: Frames,
        wanted: Callable[[torch.Tensor], bool] = lambda tensor: node_of(tensor) is not None,
        *,
        values: bool = False,
    ) -> None:
        """With ``values`` NumPy arrays and containers of numbers and strings are found, too."""
        self._frames = frames
        self._wanted = wanted
        self._values = values
        self._array: type | tuple[()] = ()
        self._modules: tuple[int, list[ModuleType]] = (0, [])
        self._dull: dict[int, tuple[int, int]] = {}
        self._instances: list[weakref.ref[Any]] = []
        self._census = 0
        self._seen: set[int] = set()
        self._left = 0
        self._tensors = 0
        self._each_place = False
        self._found: dict[int, tuple[Trail, list[Any]]] = {}

    def adopt(self) -> None:
        """From now on also look into live objects of the user's classes."""
        self._instances = instances_of_user(self._user_modules())

    def tensors(self, target: Any, frame: FrameType | None) -> dict[TensorPath, list[Any]]:
        """Wanted tensors (and values) by place: in frames from ``frame`` outwards, in the target, in
        globals, in what was adopted. Each once.
        """
        self._census += 1
        self._seen, self._left, self._found = set(), VISITS, {}
        if self._values:
            self._array = getattr(sys.modules.get("numpy"), "ndarray", ())
        if len(self._dull) > VISITS:
            self._dull.clear()
        for each in outwards(frame):
            self._frame(each)
        self._target(target)
        home = getattr(target, "__module__", None)
        # the target's own first
        for module in sorted(self._user_modules(), key=lambda module: module.__name__ != home):
            if self._left <= 0:
                break
            self._globals(module)
        for instance in self._instances:
            self._target(instance())
        found: dict[TensorPath, list[Any]] = {}
        for trail, tensors in self._found.values():
            found.setdefault(spelled(trail), []).extend(tensors)
        self._found, self._seen = {}, set()
        return found

    def stored(self, nodes: set[Node], target: Any, frame: FrameType | None) -> set[Node]:
        """Those of these nodes whose tensors lie in a container or an attribute now, whatever
        variables have them besides; all of them where not everything could be looked at.
        """
        wanted, self._wanted = self._wanted, lambda tensor: node_of(tensor) in nodes
        self._each_place = True
        try:
            held = self.tensors(target, frame)
        except RuntimeError:  # another thread changed a container meanwhile
            return nodes
        finally:
            self._wanted, self._each_place = wanted, False
        if self._left <= 0:
            return nodes
        return {node_of(each) for place, found in held.items() if place.path for each in found}

    # -- where to begin ----------------------------------------------------------------------------

    def _frame(self, frame: FrameType) -> None:
        code = frame.f_code
        if self._frames.is_user(code.co_filename) and code.co_flags & inspect.CO_OPTIMIZED:
            place = TensorPath(
                code.co_filename, code.co_qualname.replace("<locals>.", ""), code.co_firstlineno, ""
            )
            for name, value in frame_locals(frame).items():
                self._look(value, replace(place, name=name), 0)

    def _target(self, target: Any) -> None:
        if isinstance(target, ModuleType):
            self._globals(target)
        elif isinstance(target, functools.partial):
            for part in (target.func, *target.args, *target.keywords.values()):
                self._target(part)
        elif target is not None:
            cls = type(target)
            file = getattr(sys.modules.get(cls.__module__), "__file__", None) or NO_FILE
            self._look(target, TensorPath(file, cls.__qualname__, 0, "self"), 0)

    def _user_modules(self) -> list[ModuleType]:
        count, modules = self._modules
        if count != len(sys.modules):
            imported = [
                module for module in list(sys.modules.values()) if isinstance(module, ModuleType)
            ]
            modules = [module for module in imported if self._is_users(module)]
            self._modules = len(sys.modules), modules
        return modules

    def _is_users(self, module: ModuleType) -> bool:
        if module.__name__ == "__main__" and getattr(module, "__file__", None) is None:
            return True
        return self._frames.user_file(module) is not None

    def _globals(self, module: ModuleType) -> None:
        file = vars(module).get("__file__") or NO_FILE
        names = vars(module)
        if id(names) in self._seen:
            return
        self._seen.add(id(names))
        for name, value in list(names.items()):
            # a proxy may answer for its __class__, with code of its own
            if issubclass(type(value), type):
                self._class(value, file, names.get("__name__"))
            elif not name.startswith("__") and type(value) not in _ATOMS:
                self._look(value, TensorPath(file, "<module>", 0, name), 0)

    def _class(self, cls: type, file: str, module: str | None) -> None:
        if cls.__module__ != module or id(cls) in self._seen:
            return
        self._seen.add(id(cls))
        for name, value in list(vars(cls).items()):
            if not name.startswith("__"):
                self._look(value, (TensorPath(file, "<module>", 0, cls.__name__), cls, name), 1)

    # -- what is inside ----------------------------------------------------------------------------

    def _look(self, value: Any, trail: Trail, depth: int) -> None:
        kind = type(value)
        if kind in _ATOMS or self._left <= 0:
            return
        self._left -= 1
        if issubclass(kind, torch.Tensor):
            if (self._each_place or id(value) not in self._seen) and self._wanted(value):
                self._keep(value, trail)
        elif isinstance(value, self._array):
            if id(value) not in self._seen:
                self._keep(value, trail)
        elif depth <= DEPTH and id(value) not in self._seen and not issubclass(kind, _OPAQUE):
            self._seen.add(id(value))
            self._open(value, kind, trail, depth)

    def _keep(self, value: Any, trail: Trail) -> None:
        self._seen.add(id(value))
        self._found.setdefault(id(trail), (trail, []))[1].append(value)
        self._tensors += 1

    def _open(self, value: Any, kind: type, trail: Trail, depth: int) -> None:
        base = _container_base(kind)
        if base is not None:
            self._container(value, base, trail, depth)
        elif issubclass(kind, (FunctionType, LRU_CACHE)):
            self._function(value, depth)
        elif issubclass(kind, MethodType):
            function = value.__func__
            if isinstance(function, FunctionType):
                self._look(value.__self__, _inside_function(function, "self"), depth)
                self._function(function, depth)
        elif issubclass(kind, functools.partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                self._look(part, trail, depth + 1)
        elif issubclass(kind, GeneratorType):
            self._generator(value, depth)
        elif kind in _ITERATORS:
            for part in gc.get_referents(value):
                self._look(part, trail, depth)
        elif issubclass(kind, torch.nn.Module):
            self._module(value, kind, trail, depth)
        elif not kind.__module__.startswith("auditor."):
            self._object(value, kind, trail, depth)

    def _container(self, value: Any, base: Any, trail: Trail, depth: int) -> None:
        length = base.__len__(value)
        known, looked_at = self._dull.get(id(value), (-1, 0))
        dull = known == length and self._census - looked_at < LOOK_AGAIN
        if dull and not self._each_place:
            return
        before, inner = self._tensors, (trail, None, "")
        items = _NEWEST[base](value)
        if self._values and length >= LARGE and type(items[-1]) in WEIGHED:
            self._keep(value, trail)
            return
        for item in items:
            if type(item) not in _ATOMS:
                self._look(item, inner, depth + 1)
        if length >= LARGE and self._tensors == before and not self._each_place:
            self._dull[id(value)] = length, self._census

    def _function(self, function: Any, depth: int) -> None:
        if not isinstance(function, FunctionType):
            self._cached(function, depth)
            return
        code = function.__code__
        if not self._frames.is_user(code.co_filename):
            return
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            try:
                self._look(cell.cell_contents, _inside_function(function, name), depth + 1)
            except ValueError:  # an empty cell
                continue
        arguments = code.co_varnames[: code.co_argcount]
        defaults = function.__defaults__ or ()
        named = {
            **dict(zip(arguments[len(arguments) - len(defaults) :], defaults, strict=False)),
            **(function.__kwdefaults__ or {}),
        }
        for name, value in named.items():
            self._look(value, _inside_function(function, name), depth + 1)
        for name, value in list(vars(function).items()):
            if name != "__wrapped__":
                self._look(
                    value,
                    (_inside_function(function, function.__name__), FunctionType, name),
                    depth + 1,
                )
            else:
                self._look(value, _inside_function(function, name), depth)

    def _cached(self, function: Any, depth: int) -> None:
        """What a cache without a limit keeps of a function's results."""
        own = function.__wrapped__
        if isinstance(own, FunctionType) and function.cache_parameters()["maxsize"] is None:
            for part in gc.get_referents(function):
                if type(part) is dict and part is not vars(function):
                    self._look(part, _inside_function(own, own.__name__), depth + 1)

    def _generator(self, generator: GeneratorType[Any, Any, Any], depth: int) -> None:
        if generator.gi_frame is not None and not generator.gi_running:
            self._frame(generator.gi_frame)
            self._look(generator.gi_yieldfrom, TensorPath(NO_FILE, "?", 0, "?"), depth)

    def _object(self, value: Any, kind: type, trail: Trail, depth: int) -> None:
        for name, inner in _attributes(value, kind):
            if type(inner) not in _ATOMS:
                self._look(inner, (trail, kind, name), depth + 1)
        for cache in _caches(kind):
            self._look(cache, trail, depth + 1)

    def _module(self, value: Any, kind: type, trail: Trail, depth: int) -> None:
        attributes = vars(value)
        for name in [name for name in attributes if name not in _MODULE_KEYS]:
            if type(attributes[name]) not in _ATOMS:
                self._look(attributes[name], (trail, kind, name), depth + 1)
        for hook in own_hooks(value):
            self._look(hook, trail, depth)
        for name, buffer in list(own_buffers(value).items()):
            self._look(buffer, (trail, kind, name), depth + 1)
        # However deep a model is nested, its own attributes are as near as those of its root.
        for name, child in list(own_children(value).items()):
            self._look(child, (trail, kind, name), depth)


def _inside_function(function: FunctionType, name: str) -> TensorPath:
    code = function.__code__
    return TensorPath(
        code.co_filename, function.__qualname__.replace("<locals>.", ""), code.co_firstlineno, name
    )


_NEWEST: dict[type, Callable[[Any], list[Any]]] = {
    list: lambda value: list.__getitem__(value, slice(-LAST_ITEMS, None)),
    tuple: lambda value: list(tuple.__getitem__(value, slice(-LAST_ITEMS, None))),
    dict: lambda value: list(itertools.islice(reversed(dict.values(value)), LAST_ITEMS)),
    deque: lambda value: list(itertools.islice(deque.__reversed__(value), LAST_ITEMS)),
    set: lambda value: list(itertools.islice(set.__iter__(value), LAST_ITEMS)),
}
"""The newest items of a built-in container, by the built-in's own methods."""


@functools.lru_cache(maxsize=1024)
def _container_base(kind: type) -> type | None:
    return next((base for base in _NEWEST if issubclass(kind, base)), None)


def _attributes(value: Any, kind: type) -> list[tuple[str, Any]]:
    """Instance attributes, without running any code of the user's."""
    try:
        found = list(object.__getattribute__(value, "__dict__").items())
    except AttributeError:  # all slots
        found = []
    for name, slot in _slots(kind):
        with contextlib.suppress(AttributeError):  # never set
            found.append((name, slot.__get__(value, kind)))
    return found


@functools.lru_cache(maxsize=1024)
def _caches(kind: type) -> tuple[Any, ...]:
    """Methods of a class whose results are kept; a class in a function is no module's."""
    return tuple(each for each in vars(kind).values() if type(each) is LRU_CACHE)


@functools.lru_cache(maxsize=1024)
def _slots(kind: type) -> tuple[tuple[str, types.MemberDescriptorType], ...]:
    classes = [cls for cls in kind.__mro__ if "__slots__" in vars(cls)]
    return tuple(
        (n, slot)
        for cls in classes
        for n, slot in vars(cls).items()
        if isinstance(slot, types.MemberDescriptorType)
    )


def _reads_snapshot(code: CodeType, names: Mapping[str, Any]) -> bool:
    """Whether a function may read the dictionary of its variables."""
    if not _SNAPSHOT_METHODS.isdisjoint(code.co_names):
        return True
    suspects = _SNAPSHOT_READERS.intersection(code.co_names)
    if not suspects:
        return False
    if not _READER_MODULES.isdisjoint(code.co_names):
        return True
    plain = _plain_loads(code)
    modules = [sys.modules[name] for name in _READER_MODULES if name in sys.modules]
    return not plain.isdisjoint(suspects) or any(
        names.get(each) is module for each in plain for module in modules
    )


@functools.lru_cache(maxsize=256)
def _plain_loads(code: CodeType) -> frozenset[str]:
    """Names that it loads as they stand, not as attributes."""
    return frozenset(
        each.argval
        for each in dis.get_instructions(code)
        if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    )


def frame_locals(frame: FrameType) -> dict[str, Any]:
    """Local variables of a running function, leaving nothing behind.

    Before Python 3.13 ``f_locals`` is one dictionary for each frame, kept until the function
    returns: it would keep the user's tensors alive, so it is emptied again. It is also what
    ``locals()`` returned to the user, so a function that may have called that is not looked into.
    The dictionary of a module or a class body is the variables themselves and stays as it is.
    """
    code = frame.f_code
    if sys.version_info >= (3, 13) or not code.co_flags & inspect.CO_OPTIMIZED:
        return dict(frame.f_locals)
    if _reads_snapshot(code, frame.f_globals):
        return {}
    snapshot = frame.f_locals
    copy = dict(snapshot)
    snapshot.clear()
    return copy
