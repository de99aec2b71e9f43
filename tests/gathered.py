"""One test for many things: each is checked, and what failed is said of all of them at once."""

import ast
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any


@cache
def tree_of(path: Path) -> ast.Module:
    """What a file parses to: once for all tests that read it, none of which changes it."""
    return ast.parse(path.read_text("utf-8"))


def for_each(things: Iterable[Any], name: Callable[[Any], str] = str) -> Callable:
    """In the place of ``pytest.mark.parametrize`` where a check is quicker than a test of its own:
    the function is called with each thing (a tuple: with what is in it), and asks for no fixture.
    """

    def gather(check: Callable[..., None]) -> Callable[[], None]:
        def test() -> None:
            failures = []
            checked = list(things)
            for thing in checked:
                try:
                    check(*thing) if isinstance(thing, tuple) else check(thing)
                except Exception as error:
                    failures.append(f"{name(thing)}: {type(error).__name__}: {error}")
            assert not failures, f"{len(failures)} of {len(checked)}:\n" + "\n".join(failures)

        test.__name__, test.__doc__, test.__module__ = (
            check.__name__,
            check.__doc__,
            check.__module__,
        )
        return test

    return gather
