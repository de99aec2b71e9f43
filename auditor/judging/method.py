"""How a report's numbers were come by, a sentence each: the passes, what was taken off, and what
the device was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from auditor import amounts
from auditor.evidence.recorded.steps import Trained
from auditor.evidence.table import BROKEN_PROBE
from auditor.model.devices import DeviceInfo, Input, device_named, input_named
from auditor.recordings.folder import Row
from auditor.recordings.schema.run import StepRow
from auditor.runs.schedule import STEADY_STEPS

if TYPE_CHECKING:
    from auditor.model import Verdict


TOLD = 0.02
"""Share of the quiet pass from which it is said that waiting for a processor was taken off."""

PASSES = {
    "warmup": "warm-up: excluded from all numbers",
    "quiet": "timing pass: only a clock runs; all times called measured come from here",
    "anomaly_off": "timing pass with anomaly mode off: the difference is the price of anomaly mode",
    "eager_held": "timing pass without torch.compile: the difference is what compiling saves",
    "compiled_again": "timing pass, compiled again: eager steps were faster than the compiled ones "
    "before them and must also be faster than these",
    "trace": "profiler pass: torch.profiler alone, for the operators' shares and the timeline",
    "loud": "diagnostic pass: call sites, loader, backward calls, "
    "graphs; causes and counts come from here, never times",
    "leaner": "what-if pass: one change at a time, to see how the peak of memory would move",
    "memory": "memory pass: allocation history with stacks, for the snapshot",
    "values": "value pass: only checks gradients and parameters of the rehearsed steps for "
    "non-finite values",
    "replay": "replay: the run repeated up to the non-finite step, operator by operator",
    "numbers": "precision pass: dtypes and value ranges of delicate operators",
    "gradients": "gradient pass: recomputes the end of a loss with one thing repaired and compares "
    "the gradients; checks the inputs of layers and the results of activations",
    "loops": "loop pass: times the Python loops found before, and nothing else",
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
            f"waiting for a CPU took {amounts.percent(queued)} of the timing pass; step times, also "
            "in the chart, exclude it"
        )
    if "judged" in manifest:
        yield str(manifest["judged"])
    yield _FILES.get(input_named(manifest.get("device"))) or _on(
        device_named(manifest.get("device"))
    )


_FILES: dict[Input, str] = {
    "trace": "everything comes from a torch.profiler trace, whose times include the profiler's own cost",
    "checkpoint": "torch.load(weights_only=True) or safetensors read each file "
    "in its own process, and every number was checked",
    "snapshot": "everything comes from a torch memory snapshot: bytes and lines, no times",
}
"""How a file was judged that stands alone."""


def _on(device: DeviceInfo) -> str:
    """How the steps of a run were timed, on this device."""
    if device.shadow:
        return (
            "the program ran its GPU path on a shadow CUDA device: counts and bytes are those of a "
            "GPU; there are no times"
        )
    if device.simulated:
        return (
            "torch's own CUDA code ran on a device that computes nothing: counts and bytes are those "
            "of a GPU; there are no times"
        )
    if device.accelerator:
        return (
            "step times are those between device events at the step's boundaries; no "
            "synchronization was added inside a pass"
        )
    return "no GPU was used: reads that would make the host wait for a GPU are named but not priced"


# -- caveats ---------------------------------------------------------------------------------------

NAMED = 5
"""Rules that are named at most in one sentence."""


def caveats(
    trained: Trained | None, verdicts: Iterable[Verdict], broken: Iterable[str]
) -> Iterator[str]:
    """One sentence each; ``broken`` are those on rule packs that were left out."""
    if trained is not None and trained.caveat:
        yield trained.caveat
    for sentence in broken:
        yield f"{sentence}; its rules were not run"
    verdicts = tuple(verdicts)
    failed = [
        f"{each.code} ({_last_line(each.reason)})" for each in verdicts if each.status == "failed"
    ]
    if failed:
        one = len(failed) == 1
        yield (
            f"{amounts.count(len(failed), 'rule')} failed to run: {_some(failed)}; this "
            "is a fault of "
            + ("the rule, not of the target" if one else "these rules, not of the target")
        )
    reasons = dict.fromkeys(each.reason for each in verdicts if _is_blind(each))
    for reason in reasons:
        blind = [each.code for each in verdicts if _is_blind(each) and each.reason == reason]
        yield f"{reason}: {_some(blind)} could not be checked"


def _is_blind(verdict: Verdict) -> bool:
    return verdict.status == "skipped" and verdict.reason.startswith(BROKEN_PROBE)


def _some(words: list[str]) -> str:
    more = len(words) - NAMED
    return ", ".join(words[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _last_line(reason: str) -> str:
    return reason.strip().rpartition("\n")[2]
