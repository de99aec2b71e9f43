"""What is constant about an operator as the flow of values sees it, and how much work a call is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import flop_counter

from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.probes.operator_stream import Call, Operator

FLOPS_PER_BYTE = 8
"""Operations that a processor does while it moves one byte: of the order of a CPU's, less than a
GPU's.
"""

CALL_BYTES = 1 << 14
"""What the host's price for a call is worth in bytes: some us at some GB/s."""

OVERWRITING = frozenset(
    """
    zero fill copy normal uniform bernoulli random exponential log_normal geometric cauchy
    foreach_zero foreach_copy
    """.split()
)
"""Operators that need nothing of what they write into."""

FILLS = frozenset(
    "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full zero fill".split()
)
"""Operators whose result is little more than memory for what is written next."""

LIKE = frozenset(["ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full"])
"""Operators that need no more than the shape of what they are given."""

_NORM_INPUTS = 7
"""Arguments of an operator of batch norm before ``eps``: the statistics are the fourth and fifth,
whether it trains is the sixth.
"""


class FlowOperator:
    """What is constant about an operator."""

    def __init__(self, operator: Operator) -> None:
        schema = operator.schema
        self.name = operator.name
        self.view = self.name == "set" or operator.view
        self.fresh = self.name == "lift_fresh"
        self.raw = self.name.startswith(("empty", "new_empty"))
        self.overwrites = self.name in OVERWRITING
        self.like = self.name in LIKE
        tags = getattr(operator.func, "tags", ())
        self.random = torch.Tag.nondeterministic_seeded in tags
        self.sink = (
            operator.namespace != "aten"
            or self.name in {"local_scalar_dense", "is_nonzero", "equal", "item"}
            or torch.Tag.dynamic_output_shape in tags
            or not (schema.is_mutable or any("Tensor" in str(r.type) for r in schema.returns))
        )
        self._norm = (
            "batch_norm" in self.name and not operator.writes and "backward" not in self.name
        )
        packet = getattr(operator.func, "overloadpacket", None)
        self._flops: Callable[..., int] | None = flop_counter.flop_registry.get(packet)
        self.product = self._flops is not None

    def statistics(self, args: tuple[Any, ...]) -> list[torch.Tensor]:
        """Running statistics that a batch norm updates in training."""
        trains = self._norm and len(args) >= _NORM_INPUTS and args[5] is True
        return tensors(args[3:5]) if trains else []

    def work(self, call: Call, nbytes: int) -> int:
        """What a call is worth in bytes: those that it moves, its operations and the call."""
        flops = 0
        if self._flops is not None:
            try:
                flops = int(self._flops(*call.args, **call.kwargs, out_val=call.result))
            except Exception:  # a formula that does not know this call
                flops = 0
        return nbytes + flops // FLOPS_PER_BYTE + CALL_BYTES
