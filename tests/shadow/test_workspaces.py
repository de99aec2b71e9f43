"""What torch keeps for matrix products: how much by card, settings and torch, and for whom."""

import threading

import pytest
import torch
from torch import nn

from auditor.capture.shadow import Listener, ShadowDevice, current
from auditor.capture.shadow.current import HOPPER, LT, OTHERS, cublas_bytes, lt_bytes

MIB = 1 << 20
NOW = (2, 14)


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    names = ("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE")
    for name in (*names, "TORCH_CUBLASLT_UNIFIED_WORKSPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(current, "VERSION", NOW)


class Kept(Listener):
    """Workspaces in the order in which they were taken."""

    def __init__(self):
        self.taken = []

    def workspace(self, nbytes, *, kept):
        self.taken.append((nbytes, kept))


@pytest.fixture
def kept():
    listener = Kept()
    with ShadowDevice(listener):
        yield listener.taken


@pytest.mark.parametrize(
    ("capability", "version", "size"),
    [
        ((9, 0), (2, 6), 32 * MIB),
        ((9, 0), NOW, 32 * MIB),
        ((8, 0), (2, 6), 8 * MIB + MIB // 8),
        ((8, 9), NOW, 8 * MIB + MIB // 8),
        ((7, 5), NOW, 8 * MIB + MIB // 8),
        ((10, 0), (2, 8), 8 * MIB + MIB // 8),
        ((10, 0), NOW, 32 * MIB),
        ((12, 0), NOW, 32 * MIB),
    ],
)
def test_the_size_by_card_and_torch(capability, version, size):
    """As torch 2.6.0, 2.8.0 and 2.14.1 take them on the null device."""
    assert cublas_bytes(capability, version) == size


@pytest.mark.parametrize(
    ("said", "size"),
    [(":4096:8", 32 * MIB), (":16:8", 128 << 10), (":4096:2:16:8", OTHERS), ("large", HOPPER)],
)
def test_the_program_s_own_setting(monkeypatch, said, size):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", said)
    assert cublas_bytes((9, 0), NOW) == size


def test_cublaslt_has_its_own_in_older_torch_or_where_told(monkeypatch):
    assert (lt_bytes((2, 8)), lt_bytes(NOW)) == (LT, 0)
    monkeypatch.setenv("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "0")
    monkeypatch.setenv("CUBLASLT_WORKSPACE_SIZE", "2048")
    assert lt_bytes(NOW) == 2 * MIB
    monkeypatch.setenv("TORCH_CUBLASLT_UNIFIED_WORKSPACE", "1")
    assert lt_bytes((2, 8)) == 0


def test_products_on_the_host_and_of_nothing_take_none(kept):
    torch.ones(2, 2) @ torch.ones(2, 2)
    empty = torch.ones(0, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
    assert (kept, empty.shape) == ([], (0, 2))


def test_one_for_each_stream_in_the_backward_too(kept):
    x = torch.ones(2, 2, device="cuda", requires_grad=True)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        first = x @ x
    ((x @ x).sum() + first.sum()).backward()
    assert len(kept) == 4


def test_a_thread_takes_over_the_handle_of_one_that_ended(kept):
    x = torch.ones(2, 2, device="cuda")
    x @ x
    for _ in range(2):
        thread = threading.Thread(target=lambda: x @ x)
        thread.start()
        thread.join()
    assert len(kept) == 2


@pytest.mark.parametrize(
    ("version", "taken"),
    [((2, 8), [(HOPPER, True), (LT, False), (LT, False)]), ((2, 15), [(LT, False), (LT, False)])],
)
def test_one_for_each_product_with_a_bias(monkeypatch, version, taken):
    monkeypatch.setattr(current, "VERSION", version)
    listener = Kept()
    with ShadowDevice(listener), torch.no_grad():
        model = nn.Linear(8, 8).cuda()
        for _ in range(2):
            model(torch.ones(2, 8, device="cuda"))
    assert listener.taken == taken
