"""How a private name is found, and what takes its place where this torch has none."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

import torch

_NOTHING: Final = object()

FOUND: dict[str, bool] = {}
"""Full name -> whether this torch has it; True for names that only instances have."""


class Missing(RuntimeError):
    """A private name is not in this torch, and there is no other way to what it is for."""

    def __init__(self, *paths: str) -> None:
        super().__init__(f"torch {torch.__version__} has no {', no '.join(paths)}")


class Absent:
    """In the place of a function, a class or a constant: :class:`Missing` whenever it is used."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Never returns."""
        raise Missing(self._path)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name) if name.startswith("__") else Missing(self._path)


def private(path: str, otherwise: Any = None) -> Any:
    """What torch calls ``path`` (``"torch._C._nn._parse_to"``), else ``otherwise``."""
    value = _find(path)
    FOUND[path] = value is not _NOTHING
    return otherwise if value is _NOTHING else value


def needed(path: str) -> Any:
    """As :func:`private`, for what there is no other way to: :class:`Missing` when it is used."""
    return private(path, Absent(path))


REHEARSAL_NEEDS: set[str] = set()
"""Without any of these a rehearsal does not start, and says which one it lacks."""


def for_rehearsals(path: str) -> Any:
    """As :func:`needed`, for what only a rehearsal needs, or what it cannot do without."""
    REHEARSAL_NEEDS.add(path)
    return needed(path)


def on_instances(path: str, otherwise: Any = None) -> Callable[[Any], Any]:
    """Reads an attribute that torch sets in ``__init__``, so that no class can tell whether it is
    there.

    ``path`` is the class's full name and the attribute's.
    """
    FOUND[path] = True
    name = path.rpartition(".")[2]

    def read(instance: Any) -> Any:
        return getattr(instance, name, otherwise)

    return read


def in_dict(path: str) -> Callable[[Any], Any]:
    """An attribute from the instance's dictionary, for classes that answer lookups themselves."""
    FOUND[path] = True
    name = path.rpartition(".")[2]

    def read(instance: Any) -> Any:
        return instance.__dict__.get(name)

    return read


def require(*paths: str) -> None:
    """Raise :class:`Missing` if this torch lacks any of the names."""
    lacking = [path for path in paths if not FOUND[path]]
    if lacking:
        raise Missing(*lacking)


def _find(path: str) -> Any:
    value: Any = torch
    found = "torch"
    for name in path.split(".")[1:]:
        found = f"{found}.{name}"
        value = (
            getattr(value, name, _NOTHING)
            if not isinstance(value, ModuleType)
            else _in_module(value, name, found)
        )
        if value is _NOTHING:
            return _NOTHING
    return value


def _in_module(module: ModuleType, name: str, path: str) -> Any:
    """An attribute of a module, or a module inside it that is not imported yet."""
    try:
        return getattr(module, name)
    except AttributeError:
        pass
    try:
        return importlib.import_module(path)
    except ImportError:
        return _NOTHING
