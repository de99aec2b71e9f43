"""The rules, one file each. ``CATALOGUE`` is the whole list, found by the names of the files, in
the order of the manual.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

from auditor.rule import FAMILIES, Rule

if TYPE_CHECKING:
    CATALOGUE: tuple[type[Rule], ...]

FILE = re.compile(r"([a-z]+)([0-9]{3})_\w+")
"""Name of a rule's module: its code in small letters, and what is wrong. Any other module here
helps rules.
"""


def find(package: str, path: Iterable[str]) -> tuple[type[Rule], ...]:
    """The rules in a package's modules, by family and number.

    Raises TypeError for two modules of one code, a family that is not in the manual, and a module
    that does not define exactly the rule that its name says.
    """
    modules: dict[tuple[int, str], str] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(path)):
        named = FILE.fullmatch(module)
        if named is None:
            continue
        family, number = named[1].upper(), named[2]
        if family not in FAMILIES:
            raise TypeError(
                f"{module}: {family} is no family of the manual (auditor.rule.FAMILIES)"
            )
        other = modules.setdefault((FAMILIES.index(family), number), module)
        if other != module:
            raise TypeError(f"{other} and {module} are two rules of one code")
    return tuple(_only(package, module) for _, module in sorted(modules.items()))


def _only(package: str, name: str) -> type[Rule]:
    module = importlib.import_module(f"{package}.{name}")
    classes = [
        each for each in vars(module).values() if isinstance(each, type) and issubclass(each, Rule)
    ]
    found = [
        each for each in classes if each.__module__ == module.__name__ and hasattr(each, "code")
    ]
    wanted = name.partition("_")[0].upper()
    if [each.code for each in found] != [wanted]:
        raise TypeError(
            f"{name} defines {', '.join(each.code for each in found) or 'no rule'}, not {wanted} "
            "alone"
        )
    return found[0]


@cache
def _catalogue() -> tuple[type[Rule], ...]:
    return find(__name__, __path__)


def __getattr__(name: str) -> tuple[type[Rule], ...]:
    """``CATALOGUE``, when it is asked for: importing one rule does not import all."""
    if name == "CATALOGUE":
        return _catalogue()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
