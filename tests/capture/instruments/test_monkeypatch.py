"""Functions in whose place we put ours: what the caller gets, and that all is put back."""

import inspect
import types
from typing import Any

import pytest
import torch

from auditor.capture.instruments.monkeypatch import Patches


class Owner:
    def twice(self, number: int) -> int:
        if number < 0:
            raise ValueError("negative")
        return 2 * number


class Tree:
    def __init__(self, *below: "Tree") -> None:
        self.below = below

    def walk(self, mode: bool) -> None:
        for each in self.below:
            each.walk(mode)
        if not self.below and mode is None:
            raise ValueError("no mode")


def test_only_the_outermost_wanted_call_is_told_also_where_it_raises():
    before, told, patches = vars(Tree)["walk"], [], Patches()
    tree = Tree(Tree(Tree()), Tree())
    patches.after_outermost(
        Tree, "walk", lambda _, mode: mode is not False, lambda *given: told.append(given)
    )
    for mode in (True, False, True):
        tree.walk(mode)
    with pytest.raises(ValueError, match="no mode"):
        tree.walk(None)
    tree.below[0].walk(True)
    patches.undo()
    assert told == [(tree, True), (tree, True), (tree, None), (tree.below[0], True)]
    assert vars(Tree)["walk"] is before


@pytest.mark.parametrize("writes", [True, False])
def test_what_ours_raises_is_handed_over_and_does_not_reach_the_caller(writes):
    missed: list[str] = []

    def fails(*given: object) -> None:
        raise RuntimeError(f"told of {len(given)}")

    def write(error: Exception) -> None:
        missed.append(str(error))
        if not writes:
            raise OSError("the disk is full")

    patches = Patches(write)
    patches.around(Owner, "twice", before=fails, after=fails)
    try:
        assert Owner().twice(3) == 6
    finally:
        patches.undo()
    assert missed == ["told of 2", "told of 3"]


def test_a_call_that_is_on_its_way_when_the_code_is_put_back_still_arrives():
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


def test_one_that_cannot_be_taken_back_keeps_no_other_from_it():
    def fails(text: str) -> None:
        raise RuntimeError(text)

    before, patches = vars(Owner)["twice"], Patches()
    patches.on_undo(lambda: fails("oldest"))
    patches.attribute(Owner, "twice", None)
    patches.on_undo(lambda: fails("newest"))
    with pytest.raises(RuntimeError, match="newest"):
        patches.undo()
    assert vars(Owner)["twice"] is before
    patches.undo()


@pytest.mark.parametrize("known", [True, False])
def test_torch_script_takes_the_operator_in_whose_place_a_function_is(known, monkeypatch):
    """Whether its table of operators was made before, or is made meanwhile."""
    original, patches = torch.arange, Patches()

    def counted(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs)

    def scripted() -> Any:
        return torch.jit.script(counting)(torch.zeros(3)).tolist()

    if known:
        assert scripted() == [0, 1, 2]
    else:
        monkeypatch.setattr(torch.jit._builtins, "_builtin_table", None)
    patches.attribute(torch, "arange", counted)
    assert scripted() == [0, 1, 2]
    patches.undo()
    assert torch.arange is original
    assert scripted() == [0, 1, 2]
    assert id(counted) not in torch.jit._builtins._get_builtin_table()


def counting(x):
    return torch.arange(3, device=x.device)
