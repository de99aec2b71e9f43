"""Operators that stood where their derivative is infinite: what is said about them, and what to
write instead.
"""

from __future__ import annotations

import ast

from auditor.evidence.source.files import Source, name_of, span_of
from auditor.model import Edit, Site
from auditor.recordings.schema.numerics import NumericRow

EPSILON = 1e-12
"""Below the square of what float32 resolves beside 1, and far above its smallest number: the slope
at 0 is 5e5.
"""

REMEDIES = {
    "sqrt": "Add an epsilon inside the root (1e-12 in float32), or "
    "use torch.linalg.vector_norm for a vector's length: its gradient at 0 is 0.",
    "rsqrt": "Add an epsilon that the dtype can represent under the root.",
    "pow": "Add an epsilon to the base (1e-12 in float32), or clamp(min=...) it.",
    "div": "Keep the divisor away from 0: clamp(min=...) it if it is "
    "positive, or replace it by 1 where the quotient is not used.",
    "reciprocal": "Keep the divisor away from 0: clamp(min=...) it if it is "
    "positive, or replace it by 1 where the quotient is not used.",
    "exp": "Clamp exp's input below the overflow.",
    "acos": "Clamp its argument to -1 + 1e-6 and 1 - 1e-6, or use torch.atan2 of sine and cosine.",
    "asin": "Clamp its argument to -1 + 1e-6 and 1 - 1e-6, or use torch.atan2 of sine and cosine.",
}
LOGARITHM = (
    "Keep its input above 0: clamp(min=...) with a number that the dtype can represent, or a "
    "function that takes the score."
)
UNASKED = (
    "torch.where selects values, not gradients: select a harmless input first, as in "
    "torch.where(ok, f(torch.where(ok, x, torch.ones_like(x))), other)."
)


def remedy_of(call: NumericRow) -> str:
    """What to write instead."""
    text = REMEDIES.get(call.op, LOGARITHM)
    return f"{UNASKED} {text}" if call.unasked else text


def pole_said(call: NumericRow, watched: int) -> str:
    """One sentence: where it stood, and what came of it."""
    result = (
        "its result was not used there, but 0 times infinity is NaN"
        if call.unasked
        else "its derivative there is infinite"
    )
    return (
        f"{_stood(call)}: {result}, and a parameter's gradient was not finite on {call.steps} of "
        f"{watched} watched steps"
    )


def _stood(call: NumericRow) -> str:
    """The range is that of all watched steps: NaN where one of them had a NaN."""
    if call.op in ("div", "reciprocal"):
        return "a divisor was 0"
    if call.op == "exp":
        return f"exp overflowed in {call.dtype}"
    if call.op in ("acos", "asin"):
        return f"{call.op} got 1 or -1 or more"
    name = f"a power of {call.scalar:.3g}" if call.op == "pow" else call.op
    below = call.low is not None and call.low < 0
    return f"{name} got values down to {call.low:.3g}" if below else f"{name} got 0"


def epsilon_in_root(source: Source, call: NumericRow) -> Edit | None:
    """``torch.sqrt(x + 1e-12)``; None where the line has no such call, or another dtype."""
    roots = [
        node
        for node in source.calls_at(call.site)
        if name_of(node.func) == "sqrt" and not node.keywords
    ]
    if (
        call.op != "sqrt"
        or call.low != 0
        or call.dtype not in ("float32", "float64")
        or len(roots) != 1
    ):
        return None
    node = roots[0]
    value = _with_epsilon(node)
    return None if value is None else _edit(call.site, node, value)


def _with_epsilon(node: ast.Call) -> str | None:
    function = node.func
    if not isinstance(function, ast.Attribute):
        return None
    if isinstance(function.value, ast.Name) and function.value.id == "torch":
        if len(node.args) != 1 or isinstance(node.args[0], ast.Starred):
            return None
        return f"sqrt({ast.unparse(ast.BinOp(node.args[0], ast.Add(), ast.Constant(EPSILON)))})"
    return (
        None
        if node.args or ast.unparse(function.value) in ("math", "np", "numpy")
        else f"add({EPSILON!r}).sqrt()"
    )


def _edit(site: Site, node: ast.Call, value: str) -> Edit:
    reason = "the root of 0 becomes 1e-6; elsewhere only the last digits can change"
    return Edit(
        site, "rename_call", name_of(node.func), value=value, reason=reason, span=span_of(node)
    )
