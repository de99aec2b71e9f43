"""What a read is for: a branch, a number, a copy to the host, or the size of a result."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Literal

from auditor.evidence.source.files import Source, Span, name_of
from auditor.model import Site

Act = Literal["branch", "scalar", "transfer", "shape"]

TRANSFERS = frozenset({"cpu", "numpy", "tolist", "to_cpu", "print"})
SHAPES = frozenset(
    {
        "nonzero",
        "masked_select",
        "mask_index",
        "mask_put",
        "unique",
        "bincount",
        "repeat_interleave",
    }
)

# Names of CPython's instructions that ask an object for its truth, 3.11 to 3.13 (which compares and
# asks in one: a comparison of tensors by itself reads nothing).
TRUTH_OPCODES = ("POP_JUMP", "JUMP_IF_", "UNARY_NOT", "TO_BOOL", "CONTAINS_OP", "COMPARE_OP")
# Builtins that ask their arguments, or comparisons of them, for their truth.
TRUTH_CALLS = frozenset({"bool", "any", "all", "max", "min", "sorted", "filter"})
# Calls that read a number in so many words.
SCALAR_CALLS = frozenset(
    {"item", "float", "int", "tolist", "complex", "round", "isnan", "isinf", "isfinite"}
)

# Python parts of a tensor's own methods: not a library that reads behind the user's back.
GLUE = (
    "torch/_tensor.py",
    "torch/_tensor_str.py",
    "torch/functional.py",
    "torch/_jit_internal.py",
    "torch/_ops.py",
    "torch/overrides.py",
)


@dataclass(frozen=True)
class Expression:
    """The reading expression: bytecode instruction, the library function between it and the read,
    its place and text.
    """

    opcode: str = ""
    via: str = ""
    span: Span | None = None
    text: str = ""


def library_of(via: str) -> str:
    """The library function worth naming; empty for the glue under a tensor's own methods."""
    return "" if via.startswith(GLUE) else via


def framework_of(via: str) -> str:
    """The same, of other libraries than torch: one call of a framework's loop stands for very
    different reads inside it.
    """
    return "" if via.startswith("torch/") else via


def act_of(kind: str, expression: Expression, site: Site, source: Source) -> Act:
    """What a read of ``kind`` by ``expression`` is for."""
    if kind in TRANSFERS or expression.via.startswith("torch/_tensor_str.py"):
        return "transfer"
    if kind in SHAPES:
        return "shape"
    if kind != "item" or library_of(expression.via):
        return "scalar"
    return "branch" if _asks_truth(expression, site, source) else "scalar"


def _asks_truth(expression: Expression, site: Site, source: Source) -> bool:
    if expression.opcode.startswith(TRUTH_OPCODES):
        return True
    node = source.node_at(site.file, expression.span) if expression.span is not None else None
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in TRUTH_CALLS
    if node is not None or (expression.opcode and "CALL" not in expression.opcode):
        return False
    # without columns (``-X no_debug_ranges``)
    called = {name_of(call.func) for call in source.calls_at(site)}
    if called & SCALAR_CALLS:
        return False
    return bool(called & TRUTH_CALLS) or source.test_at(site)
