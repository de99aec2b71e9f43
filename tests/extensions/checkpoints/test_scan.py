"""How much of a checkpoint is looked at: its bytes sixteen times over at most, however many views
share a storage.
"""

from __future__ import annotations

import pytest
import torch

from auditor.extensions.checkpoints.scan import READS_OF_THE_FILE, scan

COUNT = 40_000


@pytest.fixture
def views(tmp_path):
    """Writes a checkpoint of views of one storage, each of another length, and reads it."""

    def write(number, *, apart=1, dtype=torch.float32):
        base = torch.ones(COUNT, dtype=dtype)
        torch.save(
            {f"w{place}": base[apart * place :] for place in range(number)}, tmp_path / "views.pt"
        )
        return scan(tmp_path / "views.pt")

    return write


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_views_of_one_storage_are_looked_at_until_so_many_bytes_are_spent(views, dtype):
    found = views(60, dtype=dtype)
    looked = [tensor.tally.count for tensor in found.tensors if tensor.tally is not None]
    assert len(found.tensors) == 60
    most, width = READS_OF_THE_FILE * found.size, dtype.itemsize
    assert most - COUNT * width <= width * sum(looked) < most
    assert [tensor.tally is None for tensor in found.tensors] == [False] * len(looked) + [True] * (
        60 - len(looked)
    )
    assert found.limits == (
        "its tensors share storages so often that not all of them were looked at",
    )
    assert found.damage == ()


def test_few_views_of_one_storage_are_all_looked_at(views):
    found = views(8)
    assert [tensor.tally.count for tensor in found.tensors] == [COUNT - place for place in range(8)]
    assert found.limits == ()


def test_the_same_view_costs_its_bytes_once(views):
    found = views(60, apart=0)
    assert [tensor.tally.count for tensor in found.tensors] == [COUNT] * 60
    assert found.limits == ()
