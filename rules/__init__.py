"""The rules, by family: ``rules/<family>/`` holds the rules of one, what their probes write and
read, and their manual pages. ``CATALOGUE`` is the whole list, in the order of the manual.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from auditor.rule import FAMILIES, Rule

if TYPE_CHECKING:
    CATALOGUE: tuple[type[Rule], ...]

FILE = re.compile(r"([a-z]+[0-9]{3})_\w+")
"""Name of the module of a single rule: its code in small letters, and what is wrong."""

APART = ("rows", "probes")
"""Modules and packages of a family without rules: recorded rows, and probes (with torch)."""


def find(package: ModuleType) -> tuple[type[Rule], ...]:
    """All families' rules of a package, in order. Raises TypeError for an unknown family."""
    names = [info.name for info in pkgutil.iter_modules(package.__path__) if info.ispkg]
    for name in names:
        if name.upper() not in FAMILIES:
            raise TypeError(f"{name} is no family of the manual (auditor.rule.FAMILIES)")
    return tuple(
        rule
        for family in FAMILIES
        if family.lower() in names
        for rule in family_of(importlib.import_module(f"{package.__name__}.{family.lower()}"))
    )


def family_of(package: ModuleType) -> tuple[type[Rule], ...]:
    """The rules that a family's modules define, by number. Raises TypeError for a rule of another
    family, two of one code, and a file named for a rule that it does not hold.
    """
    family = package.__name__.rpartition(".")[2].upper()
    found: dict[str, type[Rule]] = {}
    for rule in _rules(package):
        if rule.family() != family:
            raise TypeError(f"{rule.__module__} defines {rule.code}, which is not of {family}")
        if rule.code in found:
            other = found[rule.code].__module__
            raise TypeError(f"{other} and {rule.__module__} both define {rule.code}")
        found[rule.code] = rule
    return tuple(found[code] for code in sorted(found))


def _rules(package: ModuleType) -> Iterator[type[Rule]]:
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        name = info.name.rpartition(".")[2]
        if name in APART:
            continue
        module = importlib.import_module(info.name)
        own = [
            each
            for each in vars(module).values()
            if isinstance(each, type)
            and issubclass(each, Rule)
            and each.__module__ == info.name
            and hasattr(each, "code")
        ]
        named = FILE.fullmatch(name)
        if named is not None and [each.code for each in own] != [named[1].upper()]:
            codes = ", ".join(each.code for each in own) or "no rule"
            raise TypeError(f"{name} defines {codes}, not {named[1].upper()} alone")
        yield from own


@cache
def _catalogue() -> tuple[type[Rule], ...]:
    return find(importlib.import_module(__name__))


def __getattr__(name: str) -> tuple[type[Rule], ...]:
    """``CATALOGUE``, when it is asked for: importing one rule does not import all."""
    if name == "CATALOGUE":
        return _catalogue()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
