"""KERN001 to 3, 5, 9 and 10: what keeps a device idle in a trace, and slow paths of torch."""

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.table import Others
from auditor.evidence.trace.facts import inside
from auditor.evidence.trace.idle import (
    DEVICE,
    DRIVER,
    HOST,
    INPUT,
    LAUNCHING,
    WAIT,
    DeviceIdle,
    Gap,
)
from auditor.evidence.trace.patterns import OptimizerCalls, Structure
from auditor.model import Finding, Remedy, Severity
from auditor.model.what_if import Change
from auditor.rule import Rule, knob, see

from ..torch_says import TorchSays


class VmapLoops(TorchSays):
    """vmap runs an operator sample by sample."""

    code = "KERN009"
    severity = Severity.NOTE
    warning = "slow vmap"
    defect = "vmap has no batching rule for an operator and runs it sample by sample"
    advice = "Write that operator with the batch dimension, outside vmap."


class SearchOfACopy(TorchSays):
    """searchsorted copies what it is given."""

    code = "KERN010"
    severity = Severity.NOTE
    warning = "search copies"
    defect = "searchsorted() or bucketize() copies a non-contiguous tensor in each call"
    advice = "Call .contiguous() on it once, before."


OWNERS = {
    INPUT: ("the loop has no batch", ("DATA007",)),
    WAIT: (
        "the host had waited for the device",
        ("SYNC001", "SYNC002", "SYNC003", "SYNC004", "SYNC005", "SYNC006", "SYNC007"),
    ),
    DRIVER: ("the host was in driver calls that allocate or free memory", ("SYNC012",)),
    LAUNCHING: ("the host launches kernels more slowly than the device runs them", ("KERN003",)),
    HOST: ("the host is busy with something else", ("KERN002",)),
}
"""Who else reports the idle time, by its cause: what they carry is no second warning here."""

LONG_KERNELS = "the host pauses between launches, although most kernels run long enough to hide one"
QUEUED = "work was queued but did not start"
TOLD_US = 100.0
"""Gaps of queued work listed one by one: a launch takes 5 us, another kernel rarely more."""

LEAST_KERNELS = 20
"""Kernels below which a trace is no training step."""

UNEXPLAINED = "no single cause explains half of the idle time"


WAITED = Remedy(
    "Look at what the queued work waits for: an event of another stream, a copy, a collective whose "
    "peers are late, or another program on the same device."
)


@dataclass(frozen=True)
class DeviceIdleInStep(Rule):
    """The device has nothing to do for a large part of the step."""

    code = "KERN001"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Remove the largest cause first: feed the loop faster, remove host waits, launch less "
        "(torch.compile, CUDA graphs)."
    )

    share: float = knob(0.3, "Report if it is idle for at least this share of the steps' time.")

    def detect(self, idle: DeviceIdle, others: Others) -> Iterator[Finding]:
        if idle.share < self.share or not idle.kernels:
            return
        carried = [
            cause
            for cause, (_, owners) in OWNERS.items()
            if not others.silent(*owners) and (cause != LAUNCHING or idle.small)
        ]
        unowned = idle.share - idle.share_of(*carried)
        loud = _is_training(idle) and unowned >= self.share
        cause = max((*OWNERS, DEVICE), key=idle.share_of)
        mostly = 2 * idle.share_of(cause) >= idle.share
        why = (
            f"mostly ({amounts.percent(idle.share_of(cause))}) because {_because(idle, cause)}"
            if mostly
            else UNEXPLAINED
        )
        yield Finding(
            None,
            f"the device is idle for {amounts.percent(idle.share)} of {idle.of_what}: {why}",
            steps=idle.steps if idle.marked else 0,
            lost_us_per_step=unowned * idle.window_us / idle.steps if loud else None,
            basis="estimated" if loud else "none",
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=(*idle.facts, *_waiting_in_queue(idle)),
            remedy=WAITED if mostly and cause == DEVICE else None,
        )


def _is_training(idle: DeviceIdle) -> bool:
    return idle.marked and idle.kernels >= LEAST_KERNELS


def _because(idle: DeviceIdle, cause: str) -> str:
    if cause == DEVICE:
        return f"{QUEUED}{_longest(idle)}"
    if cause == LAUNCHING and not idle.small:
        return LONG_KERNELS
    words, owners = OWNERS[cause]
    return f"{words}{see(*owners)}"


def _longest(idle: DeviceIdle) -> str:
    """The longest gap of queued work in words."""
    gap = max(idle.queued, key=lambda gap: gap.us, default=None)
    if gap is None:
        return ""
    return (
        f" (the longest gap is {amounts.duration(gap.us)}: {gap.api} had returned "
        f"{amounts.duration(gap.launched_us)} before the work began)"
    )


def _waiting_in_queue(idle: DeviceIdle) -> Iterator[tuple[str, str]]:
    """Gaps of queued work that are long, one by one."""
    for gap in idle.queued:
        if gap.us >= TOLD_US:
            when = (
                f"queued by {gap.api}, which returned {amounts.duration(gap.launched_us)} before "
                "the work began"
            )
            yield f"gap at {amounts.duration(gap.at_us)}", f"{amounts.duration(gap.us)}, {when}"


@dataclass(frozen=True)
class HostLeavesDeviceIdle(Rule):
    """The device is idle in long gaps while the host does something else."""

    code = "KERN002"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Move the host's work there out of the step: into loader workers, onto the device, "
        "or to every N steps."
    )

    share: float = knob(0.1, "Report if such gaps take at least this share of the steps' time.")
    of_steps: float = knob(0.5, "Report a note if fewer steps than this share have such a gap.")

    def detect(self, idle: DeviceIdle) -> Iterator[Finding]:
        share = idle.share_of(HOST)
        if share < self.share or not idle.gaps:
            return
        usual = idle.gap_steps >= self.of_steps * idle.steps
        loud = _is_training(idle) and usual
        longest = idle.gaps[0]
        yield Finding(
            None,
            f"the device is idle for {amounts.percent(share)} of {idle.of_what} in gaps of 500 us or "
            "more while the host does something else; "
            f"the longest is {amounts.duration(longest.us)}{_in(longest)}",
            steps=idle.steps if idle.marked else 0,
            lost_us_per_step=idle.us_per_step(HOST) if loud else None,
            basis="estimated" if loud else "none",
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=tuple(
                (
                    f"gap at {amounts.duration(gap.at_us)}",
                    f"{amounts.duration(gap.us)}{_in(gap)}{f', until {gap.api}' if gap.api else ''}",
                )
                for gap in idle.gaps
            ),
            changes=(Change("host gaps"),) if loud else (),
        )


def _in(gap: Gap) -> str:
    return f", in `{gap.doing}`" if gap.doing else ", in Python between operators"


@dataclass(frozen=True)
class LaunchBound(Rule):
    """The device waits for launches: kernels take less time than the host needs to launch them."""

    code = "KERN003"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        'Launch less: torch.compile(model, mode="reduce-overhead") fuses operators and replays '
        "CUDA graphs. A larger batch makes each kernel longer."
    )

    share: float = knob(0.15, "Warn if it waits for launches for at least this share of the time.")
    noticed: float = knob(0.05, "Report a note if it waits for at least this share.")

    def detect(self, idle: DeviceIdle, optimizer: OptimizerCalls) -> Iterator[Finding]:
        share = idle.share_of(LAUNCHING)
        if share < self.noticed:
            return
        lost = idle.us_per_step(LAUNCHING)
        # OPT001 has it, with its price
        optimizers = min(lost, optimizer.idle_us_per_step) if optimizer.one_by_one else 0.0
        single = optimizer.one_by_one and 2 * optimizers >= lost
        loud = share >= self.share and _is_training(idle) and idle.small and not single
        most = f", most of it in the optimizer{see('OPT001')}" if single else ""
        yield Finding(
            None,
            f"the device waits for launches {amounts.percent(share)} of {idle.of_what}{most}: "
            f"the median kernel runs {amounts.duration(idle.median_kernel_us)}, and "
            f"{amounts.percent(idle.empty)} of the kernels found the queue empty",
            steps=idle.steps if idle.marked else 0,
            per_step=idle.kernels / idle.steps if idle.marked else 0.0,
            lost_us_per_step=lost - optimizers if loud else None,
            basis="estimated" if loud else "none",
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=idle.facts,
            changes=(Change("other launches" if optimizer.one_by_one else "launches"),)
            if loud
            else (),
        )


@dataclass(frozen=True)
class UnfusedAttention(Rule):
    """Attention runs as two batched matrix products with a softmax between them."""

    code = "KERN005"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Use torch.nn.functional.scaled_dot_product_attention (in transformers: "
        "attn_implementation='sdpa') with 16-bit inputs."
    )

    share: float = knob(0.1, "Warn if such attention takes at least this share of kernel time.")

    def detect(self, structure: Structure) -> Iterator[Finding]:
        share = structure.attention_share
        if not structure.attentions or share < self.share:
            return
        yield Finding(
            structure.attention_at,
            f"attention{inside(structure.attention_at)} runs as bmm, softmax, bmm: "
            f"{amounts.percent(share)} of the kernel time, "
            f"{amounts.digits(structure.attentions / structure.steps)} times "
            f"{'per step' if structure.marked else 'in the trace'}",
            steps=structure.steps if structure.marked else 0,
            per_step=structure.attentions / structure.steps if structure.marked else 0.0,
            seen_on="trace",
            severity=None if structure.marked else Severity.NOTE,
        )
