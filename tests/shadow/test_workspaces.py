"""What torch keeps for matrix products: how much by card and setting, and for whom."""

import pytest
import torch
from torch import nn

from auditor.capture.shadow import Listener, ShadowDevice, current
from auditor.capture.shadow.current import HOPPER, OTHERS, cublas_bytes


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(current, "VERSION", (2, 14))


class Kept(Listener):
    """Workspaces in the order in which they were taken."""

    def __init__(self):
        self.taken = []

    def workspace(self, nbytes):
        self.taken.append(nbytes)


@pytest.fixture
def kept():
    listener = Kept()
    with ShadowDevice(listener):
        yield listener.taken


@pytest.mark.parametrize(
    ("capability", "size"),
    [((9, 0), HOPPER), ((8, 9), OTHERS), ((7, 5), OTHERS), ((12, 0), HOPPER)],
)
def test_the_size_by_card(capability, size):
    """As torch 2.14.1 takes them on the null device."""
    assert cublas_bytes(capability) == size


@pytest.mark.parametrize(
    ("said", "size"), [(":4096:8", HOPPER), (":16:8", 128 << 10), ("large", HOPPER)]
)
def test_the_program_s_own_setting(monkeypatch, said, size):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", said)
    assert cublas_bytes((9, 0)) == size


def test_one_for_the_program_s_thread_and_one_for_autograd_s(kept):
    model = nn.Linear(8, 8).cuda()
    assert kept == []
    for _ in range(3):
        model(torch.ones(2, 8, device="cuda")).sum().backward()
    assert kept == [HOPPER] * 2


def test_products_on_the_host_and_of_nothing_take_none(kept):
    torch.ones(2, 2) @ torch.ones(2, 2)
    empty = torch.ones(0, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
    assert (kept, empty.shape) == ([], (0, 2))


def test_one_for_each_stream(kept):
    x = torch.ones(2, 2, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        x @ x
    x @ x
    assert len(kept) == 2


def test_newer_torch_keeps_none(monkeypatch, kept):
    monkeypatch.setattr(current, "VERSION", (2, 15))
    torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
    assert kept == []
