"""Dropout of a shadow: the host's numbers, CUDA's mask."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

from auditor.capture.shadow import shadow_cuda


def trained(device: str, p: float, dtype: torch.dtype, twice: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(3)
    x = torch.randn(40, 7, dtype=dtype).to(device).requires_grad_()
    y = F.dropout(x * 2, p)
    (grad,) = torch.autograd.grad((y * y).sum(), x, create_graph=twice)
    more = torch.autograd.grad((grad * grad).sum(), x) if twice else ()
    return [each.detach().cpu() for each in (y, grad, *more, torch.rand(2))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("twice", [False, True])
def test_values_gradients_and_random_state_are_the_hosts(dtype, twice):
    for p in (0.0, 0.04, 0.1, 0.15, 0.42, 0.5, 0.9, 0.99, 1.0):
        host = trained("cpu", p, dtype, twice)
        with shadow_cuda():
            device = trained("cuda", p, dtype, twice)
        for which, (expected, given) in enumerate(zip(host, device, strict=True)):
            if twice and which in (1, 2):  # torch's formula with a graph rounds otherwise
                eps = 8 * torch.finfo(dtype).eps
                assert torch.allclose(expected, given, rtol=eps, atol=64 * eps), p
            else:
                assert torch.equal(expected, given), p


def saved(run) -> list[torch.Tensor]:
    """What the graph of a function keeps."""
    kept: list[torch.Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        run()
    return kept


@pytest.mark.parametrize("without", ["train", "probability", "elements", "graph"])
def test_nothing_is_kept_where_nothing_is_dropped(without):
    with shadow_cuda():
        x = torch.randn(0 if without == "elements" else 8, device="cuda", requires_grad=True)
        with torch.no_grad() if without == "graph" else nullcontext():
            kept = saved(
                lambda: F.dropout(x, 0.0 if without == "probability" else 0.5, without != "train")
            )
        assert not any(each.dtype == torch.bool and each.numel() for each in kept)


def test_transforms_and_forward_mode_take_the_composite():
    x = torch.randn(5, 4)

    def tangents(device: str) -> torch.Tensor:
        torch.manual_seed(1)
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x.to(device), torch.ones(5, 4).to(device))
            return torch.autograd.forward_ad.unpack_dual(F.dropout(dual, 0.3)).tangent.cpu()

    def mapped(device: str) -> torch.Tensor:
        torch.manual_seed(1)
        return torch.vmap(lambda row: F.dropout(row, 0.3), randomness="same")(x.to(device)).cpu()

    for each in (tangents, mapped):
        host = each("cpu")
        with shadow_cuda():
            assert torch.equal(host, each("cuda"))
