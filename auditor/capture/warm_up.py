"""How long the warm-up of a program goes on that compiles: until it has compiled."""

from __future__ import annotations

from collections.abc import Callable

from auditor.capture.instruments.compiled_code import COMPILED_CODE

CALM = 3
"""Steps in a row in which nothing was compiled, after which the program is warm."""

MOST_MORE = 20
"""Steps that a warm-up gets at most beyond its own: a program that compiles on and on is never
warm.
"""


class WarmUp:
    """Says after each step of the warm-up whether it needs one more. Without the compiler it never
    does.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._before = 0
        self._calm = 0
        self._more = 0

    def begin(self) -> None:
        """A step begins."""
        self._before = COMPILED_CODE.compiles

    def needs_more(self, done: int, steps: int) -> bool:
        """After ``done`` of ``steps`` steps."""
        self._calm = self._calm + 1 if self._before == COMPILED_CODE.compiles else 0
        if done < steps:
            return False
        if COMPILED_CODE.compiles and self._calm < CALM and self._more < MOST_MORE:
            self._more += 1
            return True
        if self._more:
            self._say(done)
        return False

    def _say(self, done: int) -> None:
        if self._calm < CALM:
            self._warn(
                f"torch.compile still compiled after {done} warm-up steps: the program does not "
                "get warm"
            )
        else:
            self._warn(
                f"the warm-up took {done} steps, {self._more} more than planned: torch.compile "
                "was still compiling"
            )
