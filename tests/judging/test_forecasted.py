"""Forecasts of a rehearsed step: from which operators, for which GPU, and when nothing is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.extensions.forecast import step as forecasted
from auditor.extensions.forecast.step import COMPARED, gpu_asked
from auditor.model.forecasts import Forecast
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest

SQUARE = {"dtype": "bfloat16", "shape": [4096, 4096], "strides": [4096, 1]}
PRODUCT = {"id": 0, "n": 20, "name": "aten::mm", "inputs": [SQUARE, SQUARE], "outputs": [SQUARE]}
GRU = {"id": 1, "n": 9, "name": "aten::gru"}
PLAYED = {"device": "NVIDIA H100 80GB HBM3 (rehearsed on the CPU)"}


def recorded(folder: Path, *rows: dict[str, Any], **more: Any) -> Evidence:
    """Two steps with these rows in each; the description is in the first."""
    writer = RecordingWriter(folder)
    for part in ("operators", "device_use"):
        writer.touch(part)
    for step in range(2):
        for row in rows:
            told = row if not step else {"id": row["id"], "n": row["n"]}
            writer.add_fields("operators", {"pass": "loud", "step": step, **told})
        use = {"n": 1, "tf32_matmul": False, "tf32_conv": True, **more.get("use", {})}
        writer.add_fields("device_use", {"pass": "loud", "step": step, **use})
    writer.close()
    manifest = {"schema": SCHEMA, "cwd": str(folder), "device": "rehearse", "outcome": "completed"}
    manifest |= {"environment": more.get("environment", PLAYED)}
    write_manifest(folder, manifest)
    return Evidence(Recording(folder))


def told(evidence: Evidence) -> Forecast:
    faults: list[str] = []
    found = forecasted.forecast(evidence, faults)
    assert faults == []
    assert found is not None
    return found


def test_an_interval_for_each_gpu_the_played_one_first(tmp_path: Path) -> None:
    found = told(recorded(tmp_path, PRODUCT))
    assert (found.basis, found.asked, found.steps, found.operators) == ("forecast", False, 2, 20)
    assert found.flops == pytest.approx(20 * 2 * 4096**3)
    assert [each.gpu for each in found.gpus] == [
        "H100",
        *(name for name in COMPARED if name != "H100"),
    ]
    for each in found.gpus:
        assert each.low_us is not None and each.high_us is not None
        assert each.high_us / each.low_us >= 2.4
        assert each.mfu_at_most is not None and 0 < each.mfu_at_most <= 1
    assert [each.name for each in found.classes] == ["matrix products"]


def test_mfu_is_at_most_what_the_lower_end_gives(tmp_path: Path) -> None:
    found = told(recorded(tmp_path, PRODUCT))
    first = found.gpus[0]
    assert first.low_us is not None
    assert first.mfu_at_most == pytest.approx(found.flops / (first.low_us * 1e-6 * 989.4e12))


def test_no_end_is_below_the_data_sheet(tmp_path: Path) -> None:
    found = told(recorded(tmp_path, PRODUCT)).gpus[0]
    assert found.low_us is not None
    assert found.low_us >= 20 * 2 * 4096**3 / 989.4e12 * 1e6


def test_the_gpu_that_was_asked_for(tmp_path: Path) -> None:
    facts = {**PLAYED, "GPU asked for": "L40S"}
    evidence = recorded(tmp_path, PRODUCT, environment=facts)
    found = told(evidence)
    assert found.asked
    assert [each.gpu for each in found.gpus].count("L40S") == 1
    assert found.gpus[0].gpu == "L40S"
    (said,) = forecasted.method(evidence)
    assert said.startswith("times are forecast for L40S") and "NVIDIA H100 80GB HBM3" in said
    same = recorded(tmp_path / "same", PRODUCT, environment={**PLAYED, "GPU asked for": "H100"})
    assert list(forecasted.method(same)) == []


def test_classes_by_their_share(tmp_path: Path) -> None:
    added = {"id": 1, "n": 300, "name": "aten::add", "inputs": [SQUARE] * 2, "outputs": [SQUARE]}
    found = told(recorded(tmp_path, PRODUCT, added))
    assert [each.name for each in found.classes] == ["passes over memory", "matrix products"]
    assert sum(each.share for each in found.classes) == pytest.approx(1.0)


def test_a_short_step_has_an_interval_too(tmp_path: Path) -> None:
    """Of one step: the two that were recorded come to more."""
    one, twenty = (
        told(recorded(tmp_path / str(n), {**PRODUCT, "n": n})).gpus[0].high_us for n in (1, 20)
    )
    assert one is not None and twenty is not None
    assert one == pytest.approx(twenty / 20)
    assert one < 1000


def test_recurrent_layers(tmp_path: Path) -> None:
    found = told(recorded(tmp_path, PRODUCT, GRU))
    assert {each.reasons for each in found.gpus} == {(forecasted.NO_RECURRENT,)}
    assert all(each.low_us is None for each in found.gpus)


def test_calls_that_were_not_described(tmp_path: Path) -> None:
    (reason,) = told(recorded(tmp_path, PRODUCT, {"id": -1, "n": 3})).gpus[0].reasons
    assert reason == "6 calls of operators were counted and not described"


def test_what_torch_compile_was_given(tmp_path: Path) -> None:
    compiled = {"id": 1, "n": 1, "name": "torch.compile"}
    found = told(recorded(tmp_path, PRODUCT, compiled))
    assert {each.reasons for each in found.gpus} == {(forecasted.COMPILED,)}


def test_other_libraries_kernels(tmp_path: Path) -> None:
    custom = {"id": 1, "n": 1, "name": "flash_attn::fwd", "inputs": [SQUARE]}
    (reason,) = told(recorded(tmp_path, PRODUCT, custom)).gpus[0].reasons
    assert reason == "the work of flash_attn::fwd does not follow from shapes"


def test_tf32_makes_products_faster(tmp_path: Path) -> None:
    single = {**SQUARE, "dtype": "float32"}
    row = {**PRODUCT, "inputs": [single, single], "outputs": [single]}
    full = told(recorded(tmp_path / "full", row)).gpus[0]
    fast = told(recorded(tmp_path / "tf32", row, use={"tf32_matmul": True})).gpus[0]
    assert full.low_us is not None and fast.low_us is not None
    assert fast.low_us < full.low_us / 2


def test_nothing_ran_there_or_nothing_was_rehearsed(tmp_path: Path) -> None:
    faults: list[str] = []
    assert forecasted.forecast(recorded(tmp_path / "none"), faults) is None
    write_manifest(
        tmp_path, {"schema": SCHEMA, "cwd": "/", "device": "cpu", "outcome": "completed"}
    )
    assert forecasted.forecast(Evidence(Recording(tmp_path)), faults) is None
    assert faults == []


def test_the_rehearsal_beside_a_run_on_the_cpu(tmp_path: Path) -> None:
    recorded(tmp_path / "rehearsal", PRODUCT)
    write_manifest(
        tmp_path, {"schema": SCHEMA, "cwd": "/", "device": "cpu", "outcome": "completed"}
    )
    assert told(Evidence(Recording(tmp_path))).gpus[0].low_us is not None


def test_a_fault_of_ours_never_costs_the_report(tmp_path: Path) -> None:
    odd = {**PLAYED, "GPU asked for": "nobody's"}
    faults: list[str] = []
    assert forecasted.forecast(recorded(tmp_path, PRODUCT, environment=odd), faults) is None
    (said,) = faults
    assert said.startswith("no forecast for a GPU can be made")


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("", ("", "")),
        ("t4", ("T4", "T4")),
        ("A100", ("A100-80GB", "A100-80GB")),
        ("L40S", ("", "L40S")),
        ("mi300x", ("", "MI300X")),
        ("RTX-PRO-5000", ("RTX-PRO-5000", "")),
    ],
)
def test_names_of_gpus(name: str, keys: tuple[str, str]) -> None:
    assert gpu_asked(name) == keys


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(AuditProblem, match="no GPU model 'T5' is known") as caught:
        gpu_asked("T5")
    for key in ("H100", "L40S", "MI300X", "RTX-PRO-5000"):
        assert key in caught.value.hint
