"""Operators that memory bounds: what they read and write."""

from __future__ import annotations

import math

from auditor.extensions.forecast import kinds
from auditor.extensions.forecast.calls import Call, Tensor
from auditor.extensions.forecast.counted import Counts, broadcast, in_place, read, written

_BOOLEAN = frozenset(
    """
    gt lt eq ne ge le isnan isinf isfinite isposinf isneginf logical_not logical_and logical_or
    logical_xor isclose signbit
    """.split()
)
_WRITES_ONLY = frozenset({"fill_", "zero_", "random_", "normal_", "uniform_", "bernoulli_"})
_MASKED = frozenset({"native_dropout", "_fused_dropout", "dropout"})
"""Operators that also write a mask of a byte an element."""


def pointwise(call: Call) -> Counts | None:
    """An operator of elements: all inputs read, the output written."""
    tensors = call.everything
    if call.operator in _WRITES_ONLY and tensors:
        return Counts(kinds.POINTWISE, bytes=written(tensors[:1]))
    if call.outputs:
        return Counts(kinds.POINTWISE, bytes=read(tensors) + written(call.outputs))
    if not tensors:
        return None
    if in_place(call):
        return Counts(kinds.POINTWISE, bytes=read(tensors) + written(tensors[:1]))
    elements = math.prod(broadcast(tensor.shape for tensor in tensors))
    item = _result_item(call, tensors, elements)
    size = read(tensors) + elements * item
    return Counts(kinds.POINTWISE, bytes=size + (elements if call.operator in _MASKED else 0))


def _result_item(call: Call, tensors: tuple[Tensor, ...], elements: int) -> int:
    """Bytes of a result's element: torch promotes to the widest type with dimensions."""
    if call.operator in _BOOLEAN:
        return 1
    whole = [tensor.item_bytes for tensor in tensors if tensor.elements == elements]
    return max(whole or [tensor.item_bytes for tensor in tensors])


def copy(call: Call) -> Counts | None:
    """A copy on the device; one between host and device is a ``transfer``, which no kernel does."""
    tensors = call.tensors
    if not tensors:
        return None
    source = tensors[1] if call.operator == "copy_" and len(tensors) > 1 else tensors[0]
    target = call.outputs[0] if call.outputs else tensors[0]
    if target.on_host != source.on_host:
        return Counts(kinds.TRANSFER, bytes=float(target.size_bytes), kernels=0)
    return Counts(kinds.COPY, bytes=source.stored_bytes + float(target.size_bytes))


def cat(call: Call) -> Counts | None:
    """Tensors written behind one another."""
    tensors = call.everything
    if not tensors:
        return None
    return Counts(kinds.CAT, bytes=read(tensors) + written(tensors))


def reduction(call: Call) -> Counts | None:
    """A reduction: its input read once; running sums and losses kept by element write as much."""
    tensors = call.everything
    if not tensors:
        return None
    size = read(tensors)
    if call.outputs:
        return Counts(kinds.REDUCTION, bytes=size + written(call.outputs))
    if call.operator.startswith(("cum", "_cum", "_logcum")) or "backward" in call.operator:
        size += tensors[0].size_bytes
    return Counts(kinds.REDUCTION, bytes=size)


_ROW_IN_REGISTERS = 1024
"""Elements of a row that a softmax keeps in registers (PersistentSoftmax.cuh)."""
_VECTOR_BYTES = 16
"""Rows that do not end at these are read without vector loads, and not kept in shared memory."""


def softmax(call: Call) -> Counts | None:
    """A softmax or its backward. Rows that are long and not aligned are read three times: for the
    maximum, the sum and the result.
    """
    tensors = call.tensors
    if not tensors or not tensors[0].shape:
        return None
    row = tensors[0].shape[-1]
    long = row > _ROW_IN_REGISTERS and row * tensors[0].item_bytes % _VECTOR_BYTES
    passes = (2 if "backward" in call.operator else 3) if long else 1
    size = read(tensors) * passes + written(call.outputs or tensors[:1])
    return Counts(kinds.SOFTMAX, bytes=size)


def norm(call: Call) -> Counts | None:
    """Norms over a sample's own elements. The backward reads gradient and input a second time, for
    the weight.
    """
    large = [tensor for tensor in call.tensors if len(tensor.shape) > 1]
    if not large:
        return None
    size, image = read(call.tensors), float(large[0].size_bytes)
    if "backward" not in call.operator:
        return Counts(kinds.NORM, bytes=size + image)
    return Counts(kinds.NORM_BACKWARD, bytes=2 * size + image, kernels=2)


def batch_norm(call: Call) -> Counts | None:
    """Norms over a batch: statistics need a pass over the input of their own."""
    tensors = call.tensors
    if not tensors:
        return None
    size, image = read(tensors), float(tensors[0].size_bytes)
    if "backward" in call.operator:
        return Counts(kinds.BATCH_NORM_BACKWARD, bytes=size + 3 * image)
    training = call.value(5) is not False
    return Counts(kinds.BATCH_NORM, bytes=size + image * (2 if training else 1))


_LISTS_WRITTEN = {
    "_fused_adam_": (0, 2, 3),
    "_fused_adamw_": (0, 2, 3),
    "_fused_sgd_": (0, 2),
    "_fused_adagrad_": (0, 2),
}
_LAUNCH_TENSORS = {1: 110, 2: 64, 3: 48, 4: 36, 5: 30}
_LAUNCH_CHUNKS, _CHUNK_ELEMENTS = 320, 65_536
"""What one launch of MultiTensorApply.cuh takes: tensors by the number of lists, and chunks."""


def foreach(call: Call) -> Counts | None:
    """One operator over lists of tensors."""
    lists = call.lists
    if not lists or not lists[0]:
        return None
    lists = tuple(each for each in lists if not each[0].on_host)
    if not lists:
        return Counts(kinds.NOTHING, kernels=0)
    name = call.operator
    size = sum(read(each) for each in lists)
    if name == "_foreach_zero_":
        size = written(lists[0])
    elif name == "_foreach_copy_":
        size = written(lists[0]) + sum(read(each) for each in lists[1:])
    elif name in _LISTS_WRITTEN:
        size += sum(written(lists[at]) for at in _LISTS_WRITTEN[name] if at < len(lists))
    elif "norm" not in name:
        size += written(lists[0])
    return Counts(kinds.FOREACH, bytes=size, kernels=_launches(lists))


def _launches(lists: tuple[tuple[Tensor, ...], ...]) -> int:
    first = lists[0]
    limit = _LAUNCH_TENSORS.get(len(lists), _LAUNCH_TENSORS[5])
    chunks = sum(math.ceil(tensor.elements / _CHUNK_ELEMENTS) for tensor in first)
    return max(1, math.ceil(len(first) / limit), math.ceil(chunks / _LAUNCH_CHUNKS))


def pooling(call: Call) -> Counts | None:
    """Pooling and resizing; the backward of a maximum also reads where it was."""
    tensors = call.tensors
    if not tensors:
        return None
    if call.outputs:
        return Counts(kinds.POOLING, bytes=read(tensors) + written(call.outputs))
    size = read(tensors)
    if "backward" in call.operator:
        return Counts(kinds.POOLING, bytes=size + max(each.size_bytes for each in tensors))
    if "upsample" in call.operator:
        scaled = call.integers(1)
        grown = math.prod(scaled) / max(math.prod(tensors[0].shape[2:]), 1) if scaled else 1.0
        return Counts(kinds.POOLING, bytes=size + tensors[0].size_bytes * max(grown, 0.0))
    return Counts(kinds.POOLING, bytes=size + _pooled_bytes(call, tensors[0]))


def _pooled_bytes(call: Call, image: Tensor) -> float:
    """Output of a pooling, by its stride (by its window where it has none); 8 bytes an index."""
    item = image.item_bytes + (8 if "with_indices" in call.operator else 0)
    spatial = image.shape[-2:] if "2d" in call.operator else image.shape[2:]
    made = call.integers(1)
    if made is None:
        return image.elements * item / 4
    steps = made if "adaptive" in call.operator else call.integers(2) or made
    steps = steps * len(spatial) if len(steps) == 1 else steps
    if "adaptive" in call.operator:
        share = math.prod(steps) / max(math.prod(spatial), 1)
    else:
        share = 1 / max(math.prod(steps), 1)
    return image.elements * min(share, 1.0) * item


def lookup(call: Call) -> Counts | None:
    """Rows or elements taken by an index: those read and written, and the index."""
    tensors = call.everything
    if not tensors:
        return None
    table = tensors[0]
    index = [each for each in tensors[1:] if each.dtype in {"int64", "int32", "bool"}]
    taken = _taken(call, table, index)
    return Counts(kinds.LOOKUP, bytes=2.0 * taken * table.item_bytes + read(index))


def _taken(call: Call, table: Tensor, index: list[Tensor]) -> int:
    if call.outputs:
        return call.outputs[0].elements
    number = math.prod(broadcast(each.shape for each in index)) if index else 1
    if call.operator in {"gather", "take", "take_along_dim"}:
        return number
    if call.operator == "index_select":
        return number * table.elements // max(max(table.shape, default=1), 1)
    if call.operator == "index":
        return number * math.prod(table.shape[max(len(index), 1) :])
    return number * math.prod(table.shape[1:])


def irregular(call: Call) -> Counts | None:
    """Sorting, scattering and what else depends on values: all inputs read, the largest written."""
    tensors = call.everything
    if not tensors:
        return None
    made = written(call.outputs) or max(each.size_bytes for each in tensors)
    return Counts(kinds.IRREGULAR, bytes=read(tensors) + made)
