"""Digests of what ranks save."""

from __future__ import annotations

import pytest
import torch
from auditor.rules.dist.probes.rank_saves import digest_of, several_here

from tests.echo_group import as_rank

ONES = {"a": [torch.ones(3)], "b": {"c": torch.ones(2, 2)}}


def test_equal_tensors_have_equal_digests():
    assert digest_of(ONES) == digest_of({"a": (torch.ones(3),), "b": {"c": torch.ones(2, 2)}})


@pytest.mark.parametrize(
    "other",
    [
        {"a": [torch.ones(3)], "b": {"d": torch.ones(2, 2)}},
        {"a": [torch.ones(3)], "b": {"c": torch.ones(4)}},
        {"a": [torch.ones(3)], "b": {"c": torch.ones(2, 2).half()}},
        {"a": [torch.ones(3)], "b": {"c": torch.zeros(2, 2)}},
    ],
)
def test_names_shapes_types_and_numbers_count(other):
    assert digest_of(other) not in ("", digest_of(ONES))


@pytest.mark.parametrize("saved", [{}, {"step": 3}, [torch.ones(3).to_sparse()], "text"])
def test_what_is_not_compared(saved):
    assert digest_of(saved) == ""


def test_parts_of_a_larger_tensor_are_not_compared():
    class Part(torch.Tensor):
        pass

    assert digest_of({"a": torch.ones(2).as_subclass(Part)}) == ""


def test_only_ranks_that_share_a_machine_are_compared(monkeypatch):
    with as_rank(0):
        assert several_here()
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
        assert not several_here()
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert not several_here()
