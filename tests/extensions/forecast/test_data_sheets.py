"""Data sheets: one of each GPU, found by its key or by the driver's name."""

from __future__ import annotations

import pytest

from auditor.errors import AuditProblem
from auditor.extensions.forecast.data_sheets import SHEETS, sheet_of
from auditor.model.gpus import GPUS


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("H100", "H100"),
        ("h100", "H100"),
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H200", "H200"),
        ("A100", "A100-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA A100-PG509-200", "A100-40GB"),
        ("NVIDIA A10", "A10"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("Tesla T4", "T4"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("NVIDIA GeForce RTX 3090 Ti", "RTX3090Ti"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("Tesla V100-DGXS-32GB", "V100"),
        ("AMD Instinct MI300X VF", "MI300X"),
    ],
)
def test_sheets_by_name(name, key) -> None:
    assert sheet_of(name).key == key


@pytest.mark.parametrize("name", ["NVIDIA L40", "NVIDIA T400", "Tesla P100", "A1000", "", "TPU v4"])
def test_names_that_only_begin_alike_are_not_known(name) -> None:
    with pytest.raises(AuditProblem):
        sheet_of(name)


def test_keys_are_their_own() -> None:
    assert len({sheet.key for sheet in SHEETS}) == len(SHEETS)
    for sheet in SHEETS:
        assert sheet_of(sheet.key) is sheet


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.key)
def test_what_the_null_device_knows_stands_there_alone(gpu) -> None:
    if gpu.key == "RTX-PRO-5000":
        pytest.skip("no data sheet of it gives its peaks")
    sheet = sheet_of(gpu.name)
    assert sheet.key == gpu.key
    assert sheet.l2_bytes == gpu.l2_bytes
    assert sheet.bandwidth == gpu.bandwidth_bytes


@pytest.mark.parametrize("sheet", SHEETS, ids=lambda sheet: sheet.key)
def test_peaks_are_in_order_and_have_a_source(sheet) -> None:
    assert sheet.half >= sheet.tf32 >= sheet.fp32 >= sheet.fp64 > 0
    assert 1e11 < sheet.bandwidth < 1e13
    assert sheet.source
    assert sheet.amd == sheet.source.startswith("AMD")


def test_peaks_by_arithmetic() -> None:
    h100, t4 = sheet_of("H100"), sheet_of("T4")
    assert h100.peak("16-bit") == pytest.approx(989.4e12)
    assert h100.peak("8-bit") == 2 * h100.peak("16-bit")
    assert t4.peak("8-bit") == t4.peak("16-bit")
    assert t4.peak("tf32") == t4.peak("fp32") == t4.peak("vector")
    assert h100.peak("fp64") == pytest.approx(66.9e12)
