"""Filled charts for the golden reports: memory of a device over time and as segments, the timeline
of a step.
"""

from __future__ import annotations

from dataclasses import replace

from auditor.model.charts import Bar, Lanes, Layers, Pointer, Tone

GIB = 1 << 30
OWNERS = (
    Tone("model.py:31 __init__", 1),
    Tone("trainer.py:140 step", 2),
    Tone("all other lines", -1),
)


def memory(name: str = "Memory on cuda:0 over time, by the line that allocated it") -> Layers:
    """Three layers over twelve points: two steps, an error at the end."""
    x = tuple(float(1000 * number) for number in range(12))
    held = (
        tuple([2 * GIB] * 12),
        tuple((number % 4) * GIB // 2 for number in range(12)),
        tuple([GIB // 64] * 12),
    )
    marks = ((0.0, "loud step 0"), (6000.0, "loud step 1"), (11000.0, "out of memory"))
    return Layers(
        name,
        "Predicted: from a rehearsal.",
        "us",
        x,
        OWNERS,
        held,
        tuple([4 * GIB] * 12),
        marks,
        96_000,
        ("MEM", "GRAPH"),
    )


def purposes() -> Layers:
    """The same memory by what it is for."""
    tones = (
        Tone("parameters", 1),
        Tone("made in the step (activations, temporaries)", 2),
        Tone("all the rest", -1),
    )
    return replace(
        memory("Memory on cuda:0 over time, by what it is for"), layers=tones, by="purpose"
    )


def segments() -> Lanes:
    """Two segments in two rows, one half free."""
    bars = (
        Bar(0, 0.0, 2.0 * GIB, 1, "model.py:31 __init__, segment 1 of 2"),
        Bar(1, 0.0, 1.0 * GIB, 0, "free, segment 2 of 2"),
    )
    bars += (Bar(1, 1.0 * GIB, 1.0 * GIB, 2, "trainer.py:140 step, segment 2 of 2"),)
    tones = (Tone("free", 0), *OWNERS[:2])
    lanes, edges = ("0", str(2 * GIB)), ((0, 0.0), (1, 0.0))
    return Lanes(
        "segments",
        "Segments of cuda:0",
        "Row by row.",
        "bytes",
        lanes,
        tones,
        bars,
        edges,
        (),
        3,
        ("MEM004", "MEM005"),
    )


def timeline(key: str) -> Lanes:
    """One step on the host and on a stream, with one finding marked."""
    tones = (Tone("forward", 1), Tone("backward", 2), Tone("kernels", 6))
    bars = (
        Bar(0, 0.0, 9000.0, 0, "aten::linear"),
        Bar(0, 9000.0, 20_000.0, 1, "AddmmBackward0"),
        Bar(1, 500.0, 30_000.0, 2, "gemm"),
    )
    pointers = (Pointer(key, 9000.0, 400.0), Pointer("nobody's", 1.0, 1.0))
    return Lanes(
        "timeline",
        "The median step",
        "From the trace.",
        "us",
        ("host", "stream 7"),
        tones,
        bars,
        (),
        pointers,
        900,
    )
