"""The host's time beside a forecast GPU: measured on the null device, where the host runs torch's
own CUDA code and nothing waits for a kernel. Without one it is not known, and nothing is said of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from auditor.evidence.recorded.null_run import null_run
from auditor.evidence.table import Evidence
from auditor.extensions.forecast.rehearsed import rehearsal_of
from auditor.model.forecasts import Forecast, GpuForecast, HostForecast
from auditor.runs.plan import HOST_SCALE

LAUNCH_US = 10.0
"""What a launch takes in a real driver at most, beside what it takes in the null device's, which
does next to nothing: launches that find room in the queue take 5 us in the open recordings
(docs/replay.md), which is doubled."""
LEAST_STEPS = 3
"""Steps without which a range says nothing."""


def beside(evidence: Evidence, forecast: Forecast | None) -> Forecast | None:
    """The forecast with the host's time, and with what follows from it for each GPU."""
    host = host_of(evidence)
    if forecast is None or host is None:
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
