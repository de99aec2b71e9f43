"""What a rehearsed step would ask of GPUs that are not there, by its operators' shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from auditor.errors import AuditProblem, fault
from auditor.evidence.recorded.operators import RanOperators
from auditor.evidence.table import Evidence
from auditor.model.forecasts import Forecast, GpuForecast, OperatorClass
from auditor.recordings.schema import OperandItem, OperatorRow
from auditor.rule import NotLooked
from auditor.runs.plan import ASKED_GPU, REHEARSAL

if TYPE_CHECKING:
    from auditor.extensions.forecast.calls import Argument, Call, Tensor
    from auditor.extensions.forecast.forecasting import Forecast as ForecastOfGpu

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


def gpu_asked(name: str) -> tuple[str, str]:
    """The keys of the model that is played and of the data sheet that forecasts, of what ``--gpu``
    names; either is empty where only the other is known. Raises :class:`AuditProblem` for a name
    that is neither.
    """
    from auditor.extensions.forecast.data_sheets import SHEETS, sheet_of
    from auditor.model.gpus import GPUS, gpu_named

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
    """Of a recording with a rehearsal; None where nothing ran on its device. It never costs the
    report: where it fails, what happened is added to ``faults``.
    """
    rehearsed = rehearsal_of(evidence)
    if rehearsed is None:
        return None
    try:
        return _forecast(rehearsed)
    except NotLooked:
        return None
    except Exception as error:
        faults.append(f"no forecast for a GPU can be made: {fault(error)}")
        return None


def rehearsal_of(evidence: Evidence) -> Evidence | None:
    """The evidence of the rehearsal; None where there is none."""
    return evidence if evidence.recording.device.shadow else evidence.inside(REHEARSAL)


def _forecast(rehearsed: Evidence) -> Forecast:
    from auditor.extensions.forecast.forecasting import forecast as forecast_of

    ran = rehearsed.get(RanOperators)
    calls = tuple(call_of(row, n) for row, n in ran.calls if row.name not in {*RECURRENT, COMPILER})
    always = tuple(_always(ran))
    chosen, asked = _chosen(rehearsed)
    told: dict[str, ForecastOfGpu] = {}
    for gpu in (chosen, *COMPARED):
        said = forecast_of(
            calls,
            gpu,
            steps=ran.steps,
            tf32_matmul=ran.tf32_matmul,
            tf32_conv=ran.tf32_conv,
        )
        told.setdefault(said.gpu, said)
    first = next(iter(told.values()))
    return Forecast(
        asked=asked,
        steps=ran.steps,
        operators=sum(n for row, n in ran.calls) / ran.steps,
        flops=first.flops,
        nominal=first.nominal,
        gpus=tuple(
            GpuForecast(
                said.gpu,
                said.fitted,
                said.covered,
                None if always else said.lower_us,
                None if always else said.upper_us,
                None if always else said.mfu_at_most,
                always or said.reasons,
            )
            for said in told.values()
        ),
        classes=tuple(
            OperatorClass(kind.kind, kind.share, kind.fitted)
            for kind in first.kinds
            if kind.share >= LEAST_SHARE
        ),
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
    from auditor.extensions.forecast.data_sheets import sheet_of

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
    from auditor.extensions.forecast.calls import Call

    return Call(
        row.name,
        tuple(_argument(each) for each in row.inputs),
        tuple(row.values),
        tuple(_tensor(each) for each in row.outputs),
        times=times,
    )


def _argument(item: OperandItem | None) -> Argument:
    from auditor.extensions.forecast.calls import Tensor

    if item is None or item.sizes is None:
        return None if item is None else _tensor(item)
    return tuple(Tensor((size,), item.dtype, on_host=item.host) for size in item.sizes)


def _tensor(item: OperandItem) -> Tensor:
    from auditor.extensions.forecast.calls import Tensor

    strides = None if item.strides is None else tuple(item.strides)
    return Tensor(tuple(item.shape or ()), item.dtype, strides, item.host)
