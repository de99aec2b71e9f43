"""Objects of the user's classes, whoever holds them: a framework keeps a module or a callback where
no variable of the user's leads.
"""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch

MOST = 8
"""Objects of one class up to which they are parts of the program; more are its data: samples,
records, nodes.
"""

_LEFT_OUT = (type, BaseException, torch.Tensor)


def instances_of_user(modules: Iterable[ModuleType]) -> list[weakref.ref[Any]]:
    """Those alive now whose class one of ``modules`` defines; none of them is kept alive. Slow:
    asks all live objects.
    """
    homes = {module.__name__ for module in modules}
    theirs: dict[type, list[Any] | None] = {}
    for each in gc.get_objects():
        kind = type(each)
        if kind not in theirs:
            theirs[kind] = [] if _is_defined_in(kind, homes) else None
        found = theirs[kind]
        if found is not None and len(found) <= MOST:
            found.append(each)
    few = (found for found in theirs.values() if found is not None and len(found) <= MOST)
    references: list[weakref.ref[Any]] = []
    for each in (each for found in few for each in found):
        with contextlib.suppress(TypeError):  # slots without one for weak references
            references.append(weakref.ref(each))
    return references


def _is_defined_in(kind: type, homes: set[str]) -> bool:
    home = getattr(kind, "__module__", None)
    return isinstance(home, str) and home in homes and not issubclass(kind, _LEFT_OUT)
