"""Products of two zeros that are both trained: the gradient of each is a multiple of the other."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .function_tape import FunctionTape, TapedCall

PRODUCTS = frozenset("linear matmul mm bmm mv baddbmm einsum mul conv1d conv2d conv3d".split())
"""Functions that multiply each of their first two tensors by the other."""

Pair = tuple[TapedCall, torch.Tensor, torch.Tensor]
"""The product, and the two parameters that are zero."""


def zero_products(tape: FunctionTape) -> Iterator[Pair]:
    """Products whose two factors are zero because a parameter is, each because of another one: no
    step changes either of them, whatever the data are.
    """
    for call in tape.calls.values():
        factors = call.parents[:2]
        if call.name not in PRODUCTS or call.at is None or len(factors) < 2:
            continue
        if not all(each.requires_grad and _is_zero(each) for each, _ in factors):
            continue
        one, two = (_cause(tape, call, each) for each, _ in factors)
        if one is not None and two is not None and one is not two:
            yield call, one, two


def _cause(tape: FunctionTape, user: TapedCall, tensor: torch.Tensor) -> torch.Tensor | None:
    """The parameter that makes a tensor zero: itself, or a factor of a product that led to it."""
    while True:
        if isinstance(tensor, torch.nn.Parameter):
            return tensor
        maker = tape.maker_before(user, tensor)
        if maker is None:
            return None
        user = maker
        zeros = [each for each, _ in maker.parents if each.requires_grad and _is_zero(each)]
        factors = [each for each, _ in maker.parents[:2]]
        if maker.name in PRODUCTS or maker.name == "embedding":
            zeros = [each for each in zeros if any(each is one for one in factors)]
        if not zeros:
            return None
        tensor = next((each for each in zeros if isinstance(each, torch.nn.Parameter)), zeros[0])


def _is_zero(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point() and tensor.numel() and not tensor.detach().any())
