"""FLOPs and bytes of an operator's call, from its shapes, strides and types.

Bytes are what must move between memory and processors at least: each input as memory holds it, once,
and each output once; operators that read their input twice (statistics, then values) say so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from auditor.forecast import elementwise, kinds
from auditor.forecast.attention import attention
from auditor.forecast.calls import Call
from auditor.forecast.convolution import convolution, convolution_backward
from auditor.forecast.counted import FP32, TF32, Counts
from auditor.forecast.products import product

_BY_KIND: dict[str, Callable[[Call], Counts | None]] = {
    kinds.MATMUL: product,
    kinds.CONV: convolution,
    kinds.CONV_BACKWARD: convolution_backward,
    kinds.ATTENTION: attention,
    kinds.ATTENTION_BACKWARD: attention,
    kinds.NORM: elementwise.norm,
    kinds.NORM_BACKWARD: elementwise.norm,
    kinds.BATCH_NORM: elementwise.batch_norm,
    kinds.BATCH_NORM_BACKWARD: elementwise.batch_norm,
    kinds.SOFTMAX: elementwise.softmax,
    kinds.REDUCTION: elementwise.reduction,
    kinds.POINTWISE: elementwise.pointwise,
    kinds.COPY: elementwise.copy,
    kinds.FOREACH: elementwise.foreach,
    kinds.POOLING: elementwise.pooling,
    kinds.LOOKUP: elementwise.lookup,
    kinds.CAT: elementwise.cat,
    kinds.IRREGULAR: elementwise.irregular,
}
_CONVOLUTIONS = frozenset({kinds.CONV, kinds.CONV_BACKWARD, kinds.CONV_UNKNOWN})
_PRODUCTS = frozenset({kinds.MATMUL})


def count(call: Call, *, tf32_matmul: bool = False, tf32_conv: bool = True) -> Counts | None:
    """What a call costs; None where its shapes do not tell.

    ``tf32_matmul`` and ``tf32_conv`` are ``torch.backends.cuda.matmul.allow_tf32`` and
    ``torch.backends.cudnn.allow_tf32``, with torch's defaults.
    """
    kind = kinds.kind_of(call.name)
    if kind in {kinds.NOTHING, kinds.COLLECTIVE, kinds.CUSTOM}:
        return Counts(kind, kernels=0)
    tensors = call.everything + call.outputs
    if tensors and all(tensor.on_host for tensor in tensors):
        return Counts(kinds.NOTHING, kernels=0)
    counted = _BY_KIND[kind](call)
    if counted is None or call.arithmetic is not None:
        return counted and replace(counted, arithmetic=call.arithmetic or FP32)
    kind = counted.kind
    if counted.arithmetic == FP32 and (
        (tf32_conv and kind in _CONVOLUTIONS) or (tf32_matmul and kind in _PRODUCTS)
    ):
        return replace(counted, arithmetic=TF32)
    return counted
