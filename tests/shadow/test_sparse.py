"""Sparse tensors on the shadow: their parts are what the device holds, and what crosses."""

import gc

import pytest
import torch

from auditor.capture.shadow import shadow_cuda
from tests.shadow.test_device import Memory

EDGES = torch.tensor([[0, 1, 2], [1, 2, 3]])
LAYOUTS = {
    "coo": lambda: torch.sparse_coo_tensor(EDGES, torch.ones(3), (4, 4)),
    "csr": lambda: torch.eye(4).to_sparse_csr(),
    "csc": lambda: torch.eye(4).to_sparse_csc(),
}
STORED = {"coo": 3 * 4 + 6 * 8, "csr": 4 * 4 + (5 + 4) * 8, "csc": 4 * 4 + (5 + 4) * 8}
"""Bytes of values and indices."""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_tensor_holds_and_sends_its_parts(layout):
    memory = Memory()
    with shadow_cuda(memory):
        adjacency = LAYOUTS[layout]().to("cuda")
        assert sum(c.nbytes for c in memory.crossings) == STORED[layout]
        assert sum(memory.live.values()) == STORED[layout]
        del adjacency
        gc.collect()
        assert memory.live == {}
