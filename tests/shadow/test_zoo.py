"""The zoo gives the CPU's results on the shadow, bit for bit, and on the right device."""

import warnings
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch.utils import _pytree as pytree

from auditor.capture.probes.operator_stream import Subscriber
from auditor.capture.shadow import shadow_cuda
from tests.capture.streams import watched_by
from tests.shadow import zoo

HOST_RESULTS = {
    "gradient_through_copies",
    "save_load_cpu",
    "save_load_function",
    "tensor_of_scalars",
}
"""Snippets whose results lie on the host, as on CUDA."""


def run(snippet, device):
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytree.tree_leaves(snippet(device))


def on_host(value):
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach()
    return (value.to_dense() if value.is_sparse else value).cpu()


def watched():
    """Under a mode over every operator, where the last bits of taken-apart formulas may differ."""
    return watched_by(Subscriber(on_error=lambda error: pytest.fail(str(error))))


@pytest.mark.parametrize("around", [nullcontext, watched])
@pytest.mark.parametrize("name", zoo.SNIPPETS)
def test_same_result(name, around):
    snippet = zoo.SNIPPETS[name]
    wanted = [on_host(value) for value in run(snippet, "cpu")]
    with shadow_cuda():
        with around():
            values = run(snippet, "cuda")
        tensors = [
            value
            for value in values
            if isinstance(value, torch.Tensor) and not is_counter(name, value)
        ]
        if name not in HOST_RESULTS:
            assert all(value.is_cuda and value.device.type == "cuda" for value in tensors)
        got = [on_host(value) for value in values]
    assert len(got) == len(wanted)
    for mine, theirs in zip(got, wanted, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
            same = (
                torch.equal
                if around is nullcontext
                else partial(torch.allclose, rtol=1e-3, atol=1e-4)
            )
            assert same(mine.nan_to_num(7), theirs.nan_to_num(7))
        else:
            assert mine == theirs


def is_counter(name, value):
    """An optimizer's step, which torch keeps on the host."""
    return name.startswith(("ad", "na", "ra", "rm", "rp", "sgd", "asgd")) and value.dim() == 0
