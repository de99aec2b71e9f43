"""Sparse tensors on the shadow: their parts are what the device holds, and what crosses."""

import gc

import pytest
import torch

from auditor.capture.shadow import Listener, shadow_cuda

EDGES = torch.tensor([[0, 1, 2], [1, 2, 3]])
LAYOUTS = {
    "coo": lambda: torch.sparse_coo_tensor(EDGES, torch.ones(3), (4, 4)),
    "csr": lambda: torch.eye(4).to_sparse_csr(),
    "csc": lambda: torch.eye(4).to_sparse_csc(),
}
STORED = {"coo": 3 * 4 + 6 * 8, "csr": 4 * 4 + (5 + 4) * 8, "csc": 4 * 4 + (5 + 4) * 8}
"""Bytes of values and indices."""


class Memory(Listener):
    """Live storages, and bytes sent to the device."""

    tracks_memory = True

    def __init__(self) -> None:
        self.live: dict[int, int] = {}
        self.sent = 0

    def allocated(self, storage_id, nbytes):
        self.live[storage_id] = nbytes

    def freed(self, storage_id):
        del self.live[storage_id]

    def crossing(self, crossing):
        self.sent += crossing.nbytes if crossing.direction == "h2d" else 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_sparse_tensor_holds_and_sends_its_parts(layout):
    memory = Memory()
    with shadow_cuda(memory):
        adjacency = LAYOUTS[layout]().to("cuda")
        assert memory.sent == STORED[layout]
        assert sum(memory.live.values()) == STORED[layout]
        del adjacency
        gc.collect()
        assert memory.live == {}


def test_sparse_gradients_train_an_embedding():
    memory = Memory()
    with shadow_cuda(memory):
        words = torch.nn.Embedding(10, 4, sparse=True).cuda()
        before = words.weight.detach().clone()
        optimizer = torch.optim.SparseAdam(words.parameters(), lr=0.1)
        words(torch.tensor([1, 2, 2], device="cuda")).square().sum().backward()
        assert words.weight.grad.layout == torch.sparse_coo
        held = sum(memory.live.values())
        optimizer.step()
        assert (words.weight != before).any(dim=1).tolist() == [row in (1, 2) for row in range(10)]
        optimizer.zero_grad()
        gc.collect()
        assert sum(memory.live.values()) != held
