"""How a value of the user's is reached: from which variable, which attributes and items."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

NO_FILE = "?"
"""In the place of a module's file where it has none."""


@dataclass(frozen=True)
class Place:
    """How a tensor is reached: from a variable of a function or a module, along a path."""

    file: str
    """:data:`NO_FILE` for what the cells of a notebook define together."""
    function: str
    """Qualified name of the variable's function; ``<module>`` for a global."""
    first_line: int
    """Of that function; 0 for a global."""
    name: str
    path: str = ""
    owner: type | None = None
    """Class of the last object whose attribute the path names."""
    attribute: str = ""
    """That attribute; what follows it in the path are only ``[*]``."""


Trail = Place | tuple[Any, type | None, str]
"""A place not yet spelled out, since hardly any holds a graph: what it is in, then the class and
name of an attribute there, or None and nothing for an item of a container."""


def spelled(trail: Any) -> Place:
    """The place at the end of a trail."""
    steps: list[tuple[type | None, str]] = []
    while not isinstance(trail, Place):
        trail, owner, attribute = trail
        steps.append((owner, attribute))
    place = trail
    for owner, attribute in reversed(steps):
        if owner is None:
            place = replace(place, path=place.path + "[*]")
        else:
            place = replace(
                place, path=f"{place.path}.{attribute}", owner=owner, attribute=attribute
            )
    return place
