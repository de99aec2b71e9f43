"""Results that several tests of a module share, each made when the first test asks for it."""

from collections.abc import Callable
from typing import Any


class Lazily(dict[str, Any]):
    """``make(name)`` for each name that is asked for, once."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, name: str) -> Any:
        self[name] = self._make(name)
        return self[name]
