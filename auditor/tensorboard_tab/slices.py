"""Which slices of a trace belong to a finding: by the kind of work that its rule is about."""

from __future__ import annotations

# Regular expressions that Python and JavaScript read alike, over names of slices as torch.profiler
# writes them.
_COPY_TO_DEVICE = r"^Memcpy HtoD"
_PRODUCTS = r"^aten::(mm|addmm|bmm|baddbmm|convolution|cudnn_convolution)$"
_COLLECTIVES = r"^(nccl|gloo|c10d)"
_STEP = r"^ProfilerStep#"

PATTERNS = {
    "SYNC001": r"^aten::item$",
    "SYNC002": r"^aten::is_nonzero$",
    "SYNC003": r"^Memcpy DtoH",
    "SYNC004": r"^(cuda|hip)(Device|Stream|Event)Synchronize$",
    "SYNC005": r"^aten::(nonzero|masked_select|_?unique\w*|repeat_interleave|bincount)$",
    "SYNC006": _COPY_TO_DEVICE,
    "SYNC007": _COPY_TO_DEVICE,
    "SYNC008": r"^Memset",
    "SYNC010": _COPY_TO_DEVICE,
    "SYNC011": _COPY_TO_DEVICE,
    "SYNC012": r"^(cuda|hip)(Malloc|Free)",
    "DATA003": _COPY_TO_DEVICE,
    "DATA004": _COPY_TO_DEVICE,
    "DATA007": r"^enumerate\(DataLoader\)",
    "DATA008": _COPY_TO_DEVICE,
    "GRAPH002": r"^autograd::engine::evaluate_function",
    "NUM009": r"^autograd::engine::evaluate_function",
    "AMP001": _PRODUCTS,
    "AMP002": _PRODUCTS,
    "AMP003": _PRODUCTS,
    "AMP007": r"^aten::_to_copy$",
    "CFG002": r"^aten::(cudnn_batch_norm|native_batch_norm)$",
    "CFG003": r"(nchwToNhwc|nhwcToNchw)",
    "OPT001": r"^Optimizer\.step",
    "OPT002": r"^Optimizer\.zero_grad",
    "OPT003": r"^Optimizer\.step",
    "OPT004": r"^aten::(linalg_vector_norm|_foreach_norm|norm)$",
    "KERN005": r"^aten::_?softmax$",
    "KERN006": r"^aten::(select|index)$",
    "DIST002": _COLLECTIVES,
    "DIST003": _COLLECTIVES,
    "DIST004": _COLLECTIVES,
    "TIME002": _STEP,
    "TIME003": _STEP,
}
"""By code of rule. A rule that is not here has no kind of slice of its own (memory, graphs, idle
time).
"""

OUTERMOST = frozenset({"SYNC001", "SYNC002", "SYNC005", "OPT004"})
"""Rules about calls that the user's own line makes: such slices lie in no operator, backward pass
or optimizer step.
"""


def pattern(code: str) -> str:
    """The pattern of a rule's slices; empty where it has none."""
    return PATTERNS.get(code, "")
