"""Filled charts for the golden reports: memory of a device over time, the parts of the steps."""

from auditor.model.charts import Bar, Layers, Parts, Tone

GIB = 1 << 30
OWNERS = (
    Tone("model.py:31 __init__", 1),
    Tone("trainer.py:140 step", 2),
    Tone("all other lines", -1),
)


def memory(name="Memory on cuda:0 over time, by the line that allocated it"):
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


def parts():
    """The mean step on the host and on the device."""
    tones = (Tone("forward", 1), Tone("backward", 2), Tone("kernels", 6))
    bars = (
        Bar(0, 0.0, 9000.0, 0, "aten::linear"),
        Bar(0, 9000.0, 20_000.0, 1, "AddmmBackward0"),
        Bar(1, 500.0, 30_000.0, 2, "gemm"),
    )
    return Parts(
        "What the steps are made of",
        "From the trace.",
        ("mean: host", "mean: device"),
        tones,
        bars,
        ("SYNC",),
    )
