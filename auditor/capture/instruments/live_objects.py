"""Objects of the user's classes, also where only a framework holds them."""

import contextlib
import gc
import types
import weakref
from collections.abc import Iterable, Iterator
from itertools import compress, repeat
from operator import is_
from types import ModuleType
from typing import Any, TypeVar
from weakref import ref

import torch

from auditor.capture.instruments.torch_private.tensors import fix_weakref

Held = TypeVar("Held", bound=torch.Tensor | torch.UntypedStorage)


def alive(reference: ref[Held]) -> Held | None:
    """The tensor (or storage) that a weak reference names; None once it is gone.

    What Python has let go and C++ still holds is brought back by the reference, and torch must be
    told so: else it frees the Python object beneath its present user (``torch.utils.weak`` does
    the same).
    """
    found = reference()
    if found is not None:
        fix_weakref(found)
    return found


MOST = 8
"""Objects of one class that can be parts of the program; more are its data."""

T = TypeVar("T")

_LEFT_OUT = (type, BaseException, torch.Tensor)


_COMMON = frozenset(
    (
        *(dict, tuple, list, set, frozenset, type, property, classmethod, staticmethod),
        *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.CellType),
        *(types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType),
        *(types.MethodDescriptorType, types.ClassMethodDescriptorType, weakref.ReferenceType),
    )
)
"""Classes of nine in ten objects, none of which is ever looked for."""

_ASIDE: list[bool] = []

_LOOKED: list[list[Any]] = []
"""What :func:`_objects` found since :func:`one_look` began; empty outside of it."""


@contextlib.contextmanager
def one_look() -> Iterator[None]:
    """Meanwhile all live objects are listed once, as nothing of the program runs. May be nested."""
    _LOOKED.append(_LOOKED[-1] if _LOOKED else [])
    try:
        yield
    finally:
        _LOOKED.pop()


def set_aside() -> None:
    """From now on collections pass over all objects that there are, until :func:`put_back`: each full
    one takes 0.3 s with torch and its compiler, and instruments that make many objects bring it about.
    Nothing happens if the program has frozen objects itself.
    """
    if not gc.get_freeze_count():
        _ASIDE.append(True)
        gc.freeze()


def put_back() -> None:
    """Undo :func:`set_aside`. May be called twice."""
    if _ASIDE:
        _ASIDE.clear()
        gc.unfreeze()


def begin_counts_anew() -> None:
    """What imports and instruments allocated counts for no collection in the steps to come: after the
    imports of torch and its compiler a full one of 0.2 s is near, and the next one is far.
    """
    if not gc.get_freeze_count():
        gc.freeze()
        gc.unfreeze()


def _listed() -> list[Any]:
    """All live objects, those that are set aside too."""
    if not _ASIDE:
        return gc.get_objects()
    gc.unfreeze()
    try:
        return gc.get_objects()
    finally:
        gc.freeze()


def _objects() -> list[Any]:
    """All live objects but those of the commonest classes."""
    if _LOOKED and _LOOKED[-1]:
        return _LOOKED[-1]
    objects = _listed()
    try:
        kinds = list(map(type, objects))
        rare = frozenset(kinds) - _COMMON
        found = list(compress(objects, map(rare.__contains__, kinds)))
    except Exception:  # a metaclass without a hash
        found = objects
    if _LOOKED:
        _LOOKED[-1].extend(found)
    return found


def live_instances(base: type[T]) -> list[T]:
    """All objects that exist of a class and of those derived from it. Slow: asks all live objects,
    of which torch alone makes 300,000. So no line of Python runs for each, and no ``id()``, which
    tells the audit hooks of the process (PEP 578).
    """
    objects = _objects()
    try:
        kinds = frozenset(_with_subclasses(base))
        return list(compress(objects, map(kinds.__contains__, map(type, objects))))
    except Exception:  # a metaclass without a hash
        return [each for each in objects if issubclass(type(each), base)]


def live_functions() -> list[types.FunctionType]:
    """All functions that exist. Slow: asks all live objects."""
    objects = _listed()
    return list(compress(objects, map(is_, map(type, objects), repeat(types.FunctionType))))


def _with_subclasses(base: type) -> list[type]:
    """Classes by ``id`` are told apart: a metaclass may say that two are equal."""
    found = {id(base): base}
    waiting: list[Any] = [base]
    while waiting:
        for each in type.__subclasses__(waiting.pop()):
            if id(each) not in found:
                found[id(each)] = each
                waiting.append(each)
    return list(found.values())


def instances_of_user(modules: Iterable[ModuleType]) -> list[weakref.ref[Any]]:
    """Live ones whose class one of ``modules`` defines. Slow: asks all live objects."""
    homes = {module.__name__ for module in modules}
    theirs: dict[type, list[Any] | None] = {}
    for each in _objects():
        kind = type(each)
        if kind not in theirs:
            home = getattr(kind, "__module__", None)
            defined = isinstance(home, str) and home in homes
            theirs[kind] = [] if defined and not issubclass(kind, _LEFT_OUT) else None
        found = theirs[kind]
        if found is not None and len(found) <= MOST:
            found.append(each)
    few = (found for found in theirs.values() if found is not None and len(found) <= MOST)
    references: list[weakref.ref[Any]] = []
    for each in (each for found in few for each in found):
        with contextlib.suppress(TypeError):  # slots without one for weak references
            references.append(weakref.ref(each))
    return references
