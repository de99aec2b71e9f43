"""How a report's numbers were come by, a sentence each: the passes, what was taken off, and what
the device was.
"""

from __future__ import annotations

from collections.abc import Iterable

from auditor import amounts
from auditor.model.devices import DeviceInfo, Input, device_named, input_named
from auditor.recordings.folder import Row
from auditor.recordings.schema.run import StepRow
from auditor.runs.plan import STEADY_STEPS

TOLD = 0.02
"""Share of the quiet pass from which it is said that waiting for a processor was taken off."""

PASSES = {
    "warmup": "warm-up: left out of every number",
    "quiet": "timing pass: a clock and nothing that changes the step; "
    "every time that is called measured comes from here",
    "anomaly_off": "timing pass with anomaly mode held off: the difference is anomaly mode's price",
    "eager_held": "timing pass with torch.compile held off: the difference is what compiling gains",
    "compiled_again": "timing pass, compiled again: eager steps were faster than the compiled ones "
    "before them, and must be faster than these, too",
    "trace": "profiler pass: torch.profiler alone, for the operators' shares and the timeline",
    "loud": "diagnostic pass: call sites, loader, backward calls, "
    "graphs; causes and counts come from here, never times",
    "leaner": "what-if pass: one thing changed at a time, to see what the peak of memory would be",
    "memory": "memory pass: allocation history with stacks, for the snapshot",
    "values": "value pass: gradients and parameters of the rehearsed steps are checked for "
    "values that are not finite; nothing else is recorded",
    "replay": "replay: the run repeated up to the step that went "
    "non-finite, its operators watched one by one",
    "numbers": "precision pass: in which dtype and range delicate operators ran",
    "gradients": "gradient pass: the end of a loss is computed again with one thing repaired, and "
    "both gradients are compared; what layers are given and activations give is looked at",
    "loops": "pass for loops: how long the Python loops take that were found; their lines are followed "
    "and nothing else",
}


def method_of(manifest: Row, steps: list[StepRow], queued: float) -> Iterable[str]:
    """Of a manifest and the rows of its steps; ``queued`` is the share of the timing pass that
    waited for a processor.
    """
    spared, cut = manifest.get("spared", {}), manifest.get("cut", {})
    for each in manifest.get("passes", ()):
        name, count = each["name"], each["steps"]
        said = f"{count} step{'s' * (count != 1)}"
        if name in spared:
            said += f" of {count + spared[name]}: the last {STEADY_STEPS} were alike"
        elif name in cut:
            said += f" of {count + cut[name]}: steps are long"
        yield f"{PASSES.get(name, name)} ({said})"
    quiet = [row for row in steps if row.pass_name == "quiet"]
    collected = sum(row.gc_us for row in quiet)
    if collected:
        share = collected / max(1.0, sum(row.us for row in quiet))
        yield f"garbage collection took {amounts.percent(share)} of the timing pass"
    if queued >= TOLD:
        yield (
            f"waiting for a processor took {amounts.percent(queued)} of the timing pass: it is "
            "taken off every time of a step, in the chart too"
        )
    if "judged" in manifest:
        yield str(manifest["judged"])
    yield _FILES.get(input_named(manifest.get("device"))) or _on(
        device_named(manifest.get("device"))
    )


_FILES: dict[Input, str] = {
    "trace": "everything comes from a trace that torch.profiler "
    "recorded: its times hold the profiler's own cost",
    "checkpoint": "torch.load(weights_only=True) or safetensors read each file "
    "in a process of its own, and each number was looked at",
    "snapshot": "everything comes from a memory snapshot that torch wrote: "
    "bytes and lines, no times",
}
"""How a file was judged that stands alone."""


def _on(device: DeviceInfo) -> str:
    """How the steps of a run were timed, on this device."""
    if device.shadow:
        return (
            "the program ran its GPU path on a shadow CUDA device: counts and bytes are those of a "
            "GPU, there are no times"
        )
    if device.simulated:
        return (
            "torch's own code for the GPU ran on a device that computes nothing: counts and bytes "
            "are those of a GPU, no times"
        )
    if device.accelerator:
        return (
            "step times are those between device events at the step's boundaries; no "
            "synchronisation was added inside a pass"
        )
    return (
        "no GPU took part: a read that would make the host wait for a GPU is named, and not priced"
    )
