"""Functions of others in whose place we put ours: what the caller gets, and that all is put back."""

from __future__ import annotations

import inspect
import types
from typing import Any

import pytest

from auditor.capture.patching import Patches


class Owner:
    def twice(self, number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return 2 * number


def test_what_is_called_around_a_function_is_told_and_changes_nothing() -> None:
    before, told, patches = vars(Owner)["twice"], [], Patches()
    patches.around(Owner, "twice", before=lambda owner, number: told.append(number), after=lambda *given: told.append(given[0]))
    assert (Owner().twice(3), told) == (6, [3, 6])
    with pytest.raises(ValueError, match="negative"):
        Owner().twice(-1)
    patches.undo()
    assert vars(Owner)["twice"] is before


def test_what_ours_raises_does_not_reach_the_caller() -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("ours")

    patches = Patches()
    patches.around(Owner, "twice", before=fails, after=fails)
    try:
        assert Owner().twice(3) == 6
    finally:
        patches.undo()


def test_a_call_that_is_on_its_way_when_the_code_is_put_back_still_arrives() -> None:
    def user(number: int, *, more: int = 1) -> int:
        return number + more

    def hook(original: Any, *args: Any, **kwargs: Any) -> Any:
        return -original(*args, **kwargs)

    code, patches = user.__code__, Patches()
    patches.code(user, hook)
    on_its_way = types.FunctionType(user.__code__, globals())  # as a thread that entered before
    assert user(1, more=2) == -3
    patches.undo()
    assert user.__code__ is code
    assert inspect.signature(user).parameters["more"].default == 1
    assert on_its_way(1, more=2) == 3
