"""Putting a function in another's place for every reference, and putting it back exactly."""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.machinery
import importlib.util
import itertools
import sys
import threading
import types
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from auditor.machine import uncollected


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls ``action`` once, right after the named module was executed for the first time."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action
        self._busy = False
        self._acted = False

    def install(self) -> None:
        """Begin to watch; acts at once if the module is already there."""
        if self._name in sys.modules:
            self._act()
        else:
            sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        """Watch no more. May be called twice."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._acted = True

    def _act(self) -> None:
        if not self._acted:
            self._acted = True
            self._action()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Let the others find the module, and wrap its execution."""
        if fullname != self._name or self._busy:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._busy = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with uncollected():
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                self._act()  # imports, too: our probes

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


_MISSING = object()
_HOOKS: dict[int, tuple[Callable[..., Any], Callable[..., Any]]] = {}
"""By number: (hook, original). Swapped code has no closure of ours, and looks here."""

SWAPPED = "<audit>"
"""The file that swapped code says it is of."""

_NUMBERS = itertools.count(1)


class Looking(threading.local):
    """Inside, no watch takes what this thread runs for the program's. May be entered again."""

    depth = 0

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


LOOKING = Looking()
"""Whether a look of ours is under way in this thread."""


class Patches:
    """A stack of patches, undone last-in-first-out by :meth:`undo`; undoing twice does nothing.

    ``missed`` is called with what a hook of ours raises, which never reaches the user
    (:func:`guarded`).
    """

    def __init__(self, missed: Callable[[Exception], None] | None = None) -> None:
        self._undo: list[Callable[[], None]] = []
        self._missed = missed

    def __bool__(self) -> bool:
        return bool(self._undo)

    def attribute(self, owner: Any, name: str, value: Any) -> None:
        """Set ``owner.name``; undo restores it, or deletes it where the owner only inherited it."""
        before = vars(owner).get(name, _MISSING)
        unseen = _unseen_by_compilers(value, before)

        def undo() -> None:
            unseen()
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)

        setattr(owner, name, value)
        self._undo.append(undo)

    def builtin(
        self, owner: types.ModuleType, name: str, value: Any, users: Iterable[types.ModuleType]
    ) -> None:
        """Set ``owner.name``, which has no code or calls itself, and its names in these modules."""
        original = getattr(owner, name)
        self.attribute(owner, name, value)
        for module in users:
            for held in [key for key, each in list(vars(module).items()) if each is original]:
                self.attribute(module, held, value)

    def around(
        self,
        owner: Any,
        name: str,
        *,
        before: Callable[..., Any] | None = None,
        after: Callable[..., Any] | None = None,
    ) -> None:
        """Put a function of the same arguments around ``owner.name``.

        ``before`` is called with the arguments, ``after`` with the result in front of them. What
        they raise does not reach the user; it is handed to ``missed``.
        """
        original = vars(owner).get(name, getattr(owner, name))  # as it is, a classmethod included
        before, after = (hook and self.guarded(hook) for hook in (before, after))

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                before(*args, **kwargs)
            result = original(*args, **kwargs)
            if after is not None:
                after(result, *args, **kwargs)
            return result

        self.attribute(owner, name, watched)

    def after_outermost(
        self, owner: Any, name: str, wanted: Callable[..., bool], told: Callable[..., Any]
    ) -> None:
        """Call ``told`` after each wanted call of ``owner.name`` that runs inside of no other one,
        also where it raises: ``train()`` of a module calls that of its children. Both get its
        arguments.
        """
        original, told, inside = vars(owner)[name], self.guarded(told), False

        @functools.wraps(original)
        def watched(*args: Any, **kwargs: Any) -> Any:
            nonlocal inside
            if inside or not wanted(*args, **kwargs):
                return original(*args, **kwargs)
            inside = True
            try:
                return original(*args, **kwargs)
            finally:
                inside = False
                told(*args, **kwargs)

        self.attribute(owner, name, watched)

    def guarded(self, hook: Callable[..., Any]) -> Callable[..., None]:
        """The hook, for others to call: what it raises is handed to ``missed``."""
        return guarded(hook, self._missed)

    def code(self, function: types.FunctionType, hook: Callable[..., Any]) -> Callable[..., Any]:
        """Swap a Python function's code in place, so that every reference to it calls
        ``hook(original, *args, **kwargs)``.

        Returns the original as a function of its own. Works for references taken before the patch
        (aliases, class attributes, defaults, partials). Raises ValueError for a function with free
        variables.
        """
        if function.__code__.co_freevars:
            raise ValueError(
                f"{function.__qualname__} has free variables: its code cannot be swapped"
            )
        original = types.FunctionType(
            function.__code__,
            function.__globals__,
            function.__name__,
            function.__defaults__,
            function.__closure__,
        )
        original.__kwdefaults__ = function.__kwdefaults__
        original.__qualname__ = function.__qualname__
        number = next(_NUMBERS)
        _HOOKS[number] = (hook, original)
        namespace: dict[str, Any] = {}
        source = (
            f"def {function.__name__}(*args, **kwargs):\n"
            f"    from auditor.capture.instruments.monkeypatch import dispatch\n"
            f"    return dispatch({number}, args, kwargs)\n"
        )
        exec(compile(source, SWAPPED, "exec"), namespace)
        saved = function.__code__, function.__defaults__, function.__kwdefaults__
        function.__defaults__ = None
        function.__kwdefaults__ = None  # type: ignore[assignment]  # typeshed forbids None; Python allows it
        function.__code__ = namespace[function.__name__].__code__

        def undo() -> None:
            function.__code__, function.__defaults__, function.__kwdefaults__ = saved
            # a call of another thread may be on its way in
            _HOOKS[number] = lambda of, *args, **kwargs: of(*args, **kwargs), original

        self._undo.append(undo)
        return original

    def on_undo(self, undo: Callable[[], None]) -> None:
        """Register any other action to be taken back."""
        self._undo.append(undo)

    def undo(self) -> None:
        """Take everything back, newest first; the first error is raised at the end."""
        error: BaseException | None = None
        while self._undo:
            try:
                self._undo.pop()()
            except Exception as problem:
                error = error or problem
        if error is not None:
            raise error


def _unseen_by_compilers(value: Any, before: Any) -> Callable[[], None]:
    """A function in another's place, also for compile and script. Returns what undoes it."""
    functions = types.FunctionType, types.BuiltinFunctionType
    if "torch" in sys.modules and all(isinstance(each, functions) for each in (value, before)):
        from auditor.capture.instruments.torch_private.compiler import scripted_as, traced_as

        return scripted_as(traced_as(value, before), before)
    return lambda: None


def guarded(
    hook: Callable[..., Any], missed: Callable[[Exception], None] | None
) -> Callable[..., None]:
    """The hook as the program may call it: what it raises goes to ``missed``, and no further."""

    def call(*args: Any, **kwargs: Any) -> None:
        try:
            with LOOKING:
                hook(*args, **kwargs)
        except Exception as error:
            if missed is not None:
                # the disk may be full: the writer says so itself
                with contextlib.suppress(Exception):
                    missed(error)

    return call


def dispatch(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Called by swapped code: runs the hook with the original in front."""
    hook, original = _HOOKS[number]
    return hook(original, *args, **kwargs)
