"""Shapes and types of operators' inputs, where the trace was recorded with ``record_shapes``."""

from __future__ import annotations

from typing import Any

import msgspec

from auditor.timeline.trace import Trace

HALF_TYPES = frozenset({"c10::Half", "c10::BFloat16", "struct c10::Half", "struct c10::BFloat16"})


def shapes(trace: Trace, row: int) -> list[Any]:
    """``Input Dims`` of an operator: one list of sizes for each input, empty for what is no tensor.
    Empty where not recorded.
    """
    return _decoded(trace, int(trace.operators.shapes[row]))


def types(trace: Trace, row: int) -> list[Any]:
    """``Input type`` of an operator, one text for each input. Empty where not recorded."""
    return _decoded(trace, int(trace.operators.types[row]))


def is_half(name: object) -> bool:
    """Whether this is a 16-bit floating-point type as traces spell it."""
    return isinstance(name, str) and name in HALF_TYPES


def _decoded(trace: Trace, code: int) -> list[Any]:
    if code < 0:
        return []
    try:
        found = msgspec.json.decode(trace.texts[code])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # kept as raw bytes, and never looked into before
        return []
    return found if isinstance(found, list) else []
