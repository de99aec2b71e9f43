"""What a rehearsed step would ask of GPUs that are not there, by its operators' shapes, and beside
the host's time where that is known: it is measured on the null device, where the host runs torch's
own CUDA code and nothing waits for a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

from auditor.errors import AuditProblem, fault
from auditor.evidence.recorded.null_run import null_run
from auditor.evidence.recorded.operators import RanOperators
from auditor.evidence.table import Evidence
from auditor.extensions.forecast import model
from auditor.extensions.forecast.counts import Argument, Call, Tensor
from auditor.extensions.forecast.data_sheets import SHEETS, sheet_of
from auditor.model.forecasts import Forecast, GpuForecast, HostForecast, OperatorClass
from auditor.model.gpus import GPUS, gpu_named
from auditor.recordings.schema.sync import OperandItem, OperatorRow
from auditor.rule import NotLooked
from auditor.runs.plan import ASKED_GPU, HOST_SCALE, REHEARSAL

COMPARED = tuple("H100 H200 B200 A100-80GB L40S L4 A10 RTX4090 T4 MI300X".split())
"""GPUs of the table beside the one that was chosen: those that programs are mostly given."""

LEAST_SHARE = 0.01
"""Share of the predicted time below which a class of operators is not listed."""

RECURRENT = frozenset({"aten::lstm", "aten::gru", "aten::rnn_tanh", "aten::rnn_relu"})
NO_RECURRENT = (
    "recurrent layers: cuDNN runs one as a whole, and what the rehearsal saw are the many small "
    "operators of a CPU"
)
COMPILER = "torch.compile"
COMPILED = (
    "the program gives functions to torch.compile: what compiled kernels do is not in their shapes"
)


LAUNCH_US = 10.0
"""What a launch takes in a real driver at most, beside what it takes in the null device's, which
does next to nothing: launches that find room in the queue take 5 us in the open recordings
(docs/replay.md), which is doubled."""
LEAST_STEPS = 3
"""Steps without which a range says nothing."""


def gpu_asked(name: str) -> tuple[str, str]:
    """The keys of the model that is played and of the data sheet that forecasts, of what ``--gpu``
    names; either is empty where only the other is known. Raises :class:`AuditProblem` for a name
    that is neither.
    """
    if not name:
        return "", ""
    played, sheet = _key(gpu_named, name), _key(sheet_of, name)
    if not played and not sheet:
        keys = dict.fromkeys((*(gpu.key for gpu in GPUS), *(each.key for each in SHEETS)))
        raise AuditProblem(f"no GPU model {name!r} is known", f"known are {', '.join(keys)}")
    return played, sheet


def _key(look_up: Callable[[str], Any], name: str) -> str:
    try:
        return str(look_up(name).key)
    except AuditProblem:
        return ""


def forecast(evidence: Evidence, faults: list[str]) -> Forecast | None:
    """Of a recording with a rehearsal, with the host's time where that is known; None where nothing
    ran on its device. It never costs the report: where it fails, what happened is added to
    ``faults``.
    """
    rehearsed = rehearsal_of(evidence)
    if rehearsed is None:
        return None
    try:
        return beside(_forecast(rehearsed), host_of(evidence))
    except NotLooked:
        return None
    except Exception as error:
        faults.append(f"no forecast for a GPU can be made: {fault(error)}")
        return None


def rehearsal_of(evidence: Evidence) -> Evidence | None:
    """The evidence of the rehearsal; None where there is none."""
    return evidence if evidence.recording.device.shadow else evidence.inside(REHEARSAL)


def _forecast(rehearsed: Evidence) -> Forecast:
    ran = rehearsed.get(RanOperators)
    step = step_of(
        ran, ((row, n) for row, n in ran.calls if row.name not in {*RECURRENT, COMPILER}), ran.steps
    )
    always = tuple(_always(ran))
    chosen, asked = _chosen(rehearsed)
    gpus: dict[str, GpuForecast] = {}
    for gpu in (chosen, *COMPARED):
        told = model.forecast(step, gpu)
        gpus.setdefault(told.gpu, GpuForecast(told.gpu, reasons=always) if always else told)
    return Forecast(
        asked=asked,
        steps=ran.steps,
        operators=sum(n for row, n in ran.calls) / ran.steps,
        flops=model.flops_of(step),
        nominal=model.NOMINAL,
        gpus=tuple(gpus.values()),
        classes=tuple(
            OperatorClass(kind, share)
            for kind, share in model.shares(step, chosen)
            if share >= LEAST_SHARE
        ),
    )


def step_of(
    ran: RanOperators, calls: Iterable[tuple[OperatorRow, int]], steps: int
) -> tuple[model.Ran, ...]:
    """What described calls of so many steps cost in one."""
    return model.counted(
        (call_of(row, n) for row, n in calls),
        steps=steps,
        tf32_matmul=ran.tf32_matmul,
        tf32_conv=ran.tf32_conv,
    )


def _always(ran: RanOperators) -> Iterator[str]:
    """Why nothing can be said of any GPU."""
    names = {row.name for row, _ in ran.calls}
    if names & RECURRENT:
        yield NO_RECURRENT
    if COMPILER in names:
        yield COMPILED
    if ran.undescribed:
        yield f"{ran.undescribed} calls of operators were counted and not described"


def _chosen(rehearsed: Evidence) -> tuple[str, bool]:
    """The GPU that was asked for, or the one that was played."""
    facts = rehearsed.recording.manifest.get("environment") or {}
    asked = str(facts.get(ASKED_GPU) or "")
    return (asked, True) if asked else (_played(rehearsed), False)


def _played(rehearsed: Evidence) -> str:
    facts = rehearsed.recording.manifest.get("environment") or {}
    return str(facts.get("device") or "").removesuffix(" (rehearsed on the CPU)")


def method(evidence: Evidence) -> Iterator[str]:
    """Where another GPU is played than forecast."""
    rehearsed = rehearsal_of(evidence)
    if rehearsed is None:
        return
    facts = rehearsed.recording.manifest.get("environment") or {}
    asked, played = facts.get(ASKED_GPU), _played(rehearsed)
    if asked and played and _key(sheet_of, played) != asked:
        yield (
            f"times are forecast for {asked}, by its data sheet; the rehearsal plays the memory "
            f"of {played}"
        )


def call_of(row: OperatorRow, times: int) -> Call:
    """A described call, for the forecast."""
    return Call(
        row.name,
        tuple(_argument(each) for each in row.inputs),
        tuple(row.values),
        tuple(_tensor(each) for each in row.outputs),
        times=times,
    )


def _argument(item: OperandItem | None) -> Argument:
    if item is None or item.sizes is None:
        return None if item is None else _tensor(item)
    return tuple(Tensor((size,), item.dtype, on_host=item.host) for size in item.sizes)


def _tensor(item: OperandItem) -> Tensor:
    strides = None if item.strides is None else tuple(item.strides)
    return Tensor(tuple(item.shape or ()), item.dtype, strides, item.host)


def beside(forecast: Forecast, host: HostForecast | None) -> Forecast:
    """The forecast with the host's time, and with what follows from it for each GPU."""
    if host is None:
        return forecast
    gpus = tuple(with_host(each, host) for each in forecast.gpus)
    return replace(forecast, host=host, gpus=gpus)


def host_of(evidence: Evidence) -> HostForecast | None:
    """None where no null device ran, or the program went another way there."""
    run, rehearsed = evidence.once(null_run), rehearsal_of(evidence)
    if run is None or rehearsed is None or len(run.host_us) < LEAST_STEPS:
        return None
    facts = rehearsed.recording.manifest.get("environment") or {}
    scale = float(facts.get(HOST_SCALE) or 1.0)
    calls = LAUNCH_US * run.launches
    return HostForecast(
        len(run.host_us), scale, scale * min(run.host_us), scale * (max(run.host_us) + calls)
    )


def with_host(each: GpuForecast, host: HostForecast) -> GpuForecast:
    """What one GPU and this host do together. Host and GPU that take turns take the sum of both;
    were neither ever to wait, the step would take the longer of them.
    """
    low, high = each.low_us, each.high_us
    if low is None or high is None:
        return each
    bound: Literal["host", "device", ""] = ""
    if host.low_us > high:
        bound = "host"
    elif low > host.high_us:
        bound = "device"
    return replace(
        each,
        bound=bound,
        idle_low_us=max(0.0, host.low_us - high),
        idle_high_us=host.high_us,
        step_low_us=max(low, host.low_us),
        step_high_us=high + host.high_us,
    )
