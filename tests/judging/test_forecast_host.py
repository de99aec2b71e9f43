"""The host's time beside a forecast GPU: from steps on the null device that went the rehearsal's way;
launch-bound or not only where both intervals say so.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from auditor.reports import forecasts
from auditor.reports.as_json import Json, load

from auditor.evidence.table import Evidence
from auditor.extensions.forecast.step import LAUNCH_US, beside, host_of, with_host
from auditor.model.forecasts import Forecast, GpuForecast, HostForecast
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.runs.plan import HOST_SCALE
from tests.reports import golden_report as golden

GPU = GpuForecast("H100", 3000.0, 9000.0, 0.1)
STEPS = 3


def recording(
    folder: Path, device: str, *rows: tuple[str, dict[str, Any]], **facts: object
) -> None:
    writer = RecordingWriter(folder)
    at = writer.site(str(folder / "t.py"), 7, "step")
    for step in range(STEPS):
        course = {"pass": "loud", "step": step, "global_step": step, "places": [at]}
        writer.add_fields("course", {**course, "read_at": [], "read": [], "sized": []})
    for part, row in rows:
        more = {"at": at} if part == "device_work" else {}
        writer.add_fields(part, {**more, **row})
    writer.close()
    manifest = {"schema": SCHEMA, "cwd": str(folder), "device": device, "outcome": "completed"}
    write_manifest(folder, {**manifest, "environment": facts})


def run(folder: Path, *host_us: float, queued: float = 0.0, scale: str = "") -> Evidence:
    """A rehearsal with a null device beside it: so long on the host in each step of its last pass,
    with 4 launches a step.
    """
    recording(folder / "rehearsal", "rehearse", **({HOST_SCALE: scale} if scale else {}))
    rows: list[tuple[str, dict[str, Any]]] = []
    for step in range(STEPS):
        rows.append(("steps", {"pass": "loud", "step": step, "us": 9e9, "host_us": 9e9}))
        work = {"n": 4, "launches": 4, "waits": 0, "may_wait": 0, "calls": []}
        rows.append(("device_work", {"pass": "loud", "step": step, **work}))
    for step, us in enumerate(host_us):
        row = {"pass": "quiet", "step": step, "us": 1.0, "host_us": us, "queued_us": queued}
        rows.append(("steps", row))
    recording(folder / "null", "null", *rows)
    manifest = {"schema": SCHEMA, "cwd": "/", "device": "cpu", "outcome": "completed"}
    write_manifest(folder, manifest)
    return Evidence(Recording(folder))


def test_the_range_of_the_steps_and_what_launches_may_add(tmp_path: Path) -> None:
    host = host_of(run(tmp_path, 500.0, 700.0, 600.0))
    assert host == HostForecast(3, 1.0, 500.0, 700.0 + 4 * LAUNCH_US)


def test_waiting_for_a_processor_is_not_the_hosts_work(tmp_path: Path) -> None:
    host = host_of(run(tmp_path, 500.0, 700.0, 600.0, queued=100.0))
    assert host is not None and host.low_us == 400.0


def test_another_machines_host_by_a_factor(tmp_path: Path) -> None:
    host = host_of(run(tmp_path, 500.0, 700.0, 600.0, scale="0.5"))
    assert host == HostForecast(3, 0.5, 250.0, 350.0 + 2 * LAUNCH_US)


def test_without_enough_steps_or_a_null_device_it_is_not_known(tmp_path: Path) -> None:
    assert host_of(run(tmp_path / "few", 500.0, 700.0)) is None
    recording(tmp_path / "shadow", "rehearse")
    alone = Evidence(Recording(tmp_path / "shadow"))
    assert host_of(alone) is None
    forecast = Forecast(gpus=(GPU,))
    assert beside(forecast, None) is forecast


def test_a_step_that_went_another_way_has_no_time(tmp_path: Path) -> None:
    evidence = run(tmp_path, 500.0, 700.0, 600.0)
    writer = RecordingWriter(tmp_path / "null")
    at = writer.site("elsewhere.py", 9, "step")
    course = {"pass": "memory", "step": 0, "global_step": STEPS, "places": [at]}
    for folder in (tmp_path / "null", tmp_path / "rehearsal"):
        writer = RecordingWriter(folder)
        at = writer.site(f"{folder.name}.py", 9, "step")
        row = {**course, "places": [at], "read_at": [], "read": [], "sized": []}
        writer.add_fields("course", row)
        writer.close()
        write_manifest(folder, Recording(folder).manifest)
    assert host_of(Evidence(evidence.recording)) is None


@pytest.mark.parametrize(
    ("low", "high", "bound"),
    [
        (9001.0, 9500.0, "host"),
        (9000.0, 9500.0, ""),
        (3000.0, 3100.0, ""),
        (100.0, 3000.0, ""),
        (100.0, 2999.0, "device"),
    ],
)
def test_launch_bound_or_not_where_both_intervals_say_so(
    low: float, high: float, bound: str
) -> None:
    each = with_host(GPU, HostForecast(5, 1.0, low, high))
    assert each.bound == bound
    assert each.step_low_us == max(low, 3000.0)
    assert each.step_high_us == 9000.0 + high
    assert (each.idle_low_us, each.idle_high_us) == (max(0.0, low - 9000.0), high)


def test_where_nothing_is_said_of_the_gpu_nothing_is_added() -> None:
    silent = GpuForecast("H100", reasons=("why",))
    assert with_host(silent, HostForecast(5, 1.0, 1.0, 2.0)) is silent


def test_what_is_said(tmp_path: Path) -> None:
    evidence = run(tmp_path, 10_000.0, 12_000.0, 11_000.0, scale="2")
    forecast = beside(Forecast(asked=True, gpus=(GPU,)), host_of(evidence))
    report = replace(golden.silent_report(), forecast=forecast)
    *_, said = forecasts.sentences(report)
    assert said == (
        "The host takes 20 ms to 24.1 ms for a step (measured here in 3 steps on the null device, "
        "with what a driver's launches may add, times 2 (--host-scale)). The step would be "
        "launch-bound: the host takes longer over the whole interval. The GPU would be idle for "
        "11 ms to 24.1 ms of a step that takes 20 ms to 33.1 ms."
    )
    assert "not known" not in " ".join(forecasts.sentences(report))
    assert load(Json().render(report)).forecast == forecast
