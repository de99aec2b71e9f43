"""Attention with dropout of a shadow: the host's numbers, CUDA's memory."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from auditor.capture.shadow import shadow_cuda
from tests.shadow.test_dropout import saved

TOKENS = 24


def trained(device: str, dtype: torch.dtype, kind: str, width: int = 8) -> list[torch.Tensor]:
    torch.manual_seed(5)
    inputs = [torch.randn(2, 3, TOKENS, width, dtype=dtype) for _ in range(3)]
    q, k, v = (each.to(device).requires_grad_() for each in inputs)
    mask = None
    if kind == "mask":
        mask = (torch.rand(TOKENS, TOKENS) < 0.8).to(device) | torch.eye(
            TOKENS, dtype=torch.bool, device=device
        )
    elif kind == "bias":
        mask = torch.randn(2, 1, TOKENS, TOKENS, dtype=dtype).to(device)
    more = {"scale": 0.3} if kind == "scale" else {}
    out = F.scaled_dot_product_attention(q, k, v, mask, 0.2, kind == "causal", **more)
    out.float().square().sum().backward()
    return [each.detach().cpu() for each in (out, q.grad, k.grad, v.grad, torch.rand(2))]


class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "bias", "scale"])
def test_values_gradients_and_random_state_are_the_hosts(dtype, kind, watched):
    host = trained("cpu", dtype, kind)
    with shadow_cuda(), Watch() if watched else nullcontext():
        device = trained("cuda", dtype, kind)
    for expected, given in zip(host, device, strict=True):
        assert torch.equal(expected, given)


def pairs(run) -> int:
    """Tensors that the graph keeps with a number for each pair of tokens."""
    return sum(each.shape[-2:] == (TOKENS, TOKENS) for each in saved(run))


def test_nothing_of_all_pairs_is_kept():
    with shadow_cuda():
        q, k, v = (torch.randn(2, 3, TOKENS, 8, device="cuda", requires_grad=True) for _ in "qkv")
        kept = saved(lambda: F.scaled_dot_product_attention(q, k, v, None, 0.1, True))
        assert sum(each.numel() for each in kept if each.dtype.is_floating_point) == (
            4 * q.numel() + 2 * 3 * 32
        )
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True, device="cuda")
        x = torch.randn(2, TOKENS, 32, device="cuda")
        assert pairs(lambda: layer(x)) == 0
