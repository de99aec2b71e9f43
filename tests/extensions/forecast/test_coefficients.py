"""The file of fitted numbers: its form, and what is refused."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from auditor.errors import AuditProblem
from auditor.extensions.forecast import kinds
from auditor.extensions.forecast.coefficients import ANY, PATH, read
from auditor.extensions.forecast.data_sheets import SHEETS
from auditor.extensions.forecast.intervals import LEAST_RATIO
from auditor.extensions.forecast.matmul import MatmulNumbers


def test_the_file_that_is_shipped() -> None:
    found = read()
    assert {"H100", "H200", "B200", "A100-80GB", "L40S", ANY} <= set(found.matmul["16-bit"])
    assert ANY in found.matmul["fp32"]
    assert set(found.classes) <= set(kinds.MODELLED)
    assert found.spread.upper / found.spread.lower >= LEAST_RATIO * 0.999
    assert len(found.groups) >= 9
    assert PATH.stat().st_size < 16_000


def test_six_numbers_a_gpu() -> None:
    assert len(fields(MatmulNumbers)) == 6
    known = {sheet.key for sheet in SHEETS}
    for fits in read().matmul.values():
        assert {key for key in fits if not key.startswith(ANY)} <= known


def test_each_source_has_its_licence_and_notice() -> None:
    for source in read().sources:
        assert source.licence and source.notice and source.what


def test_nothing_shipped_names_a_machine_or_a_path() -> None:
    assert "/work" not in PATH.read_text()


def changed(tmp_path: Path, change) -> Path:
    document = json.loads(PATH.read_text())
    change(document)
    path = tmp_path / "coefficients.json"
    path.write_text(json.dumps(document))
    return path


def drop_any(document) -> None:
    del document["matmul"]["fp32"][ANY]


def too_fast(document) -> None:
    document["matmul"]["16-bit"]["H100"]["numbers"]["compute"] = 1.01


def no_floor(document) -> None:
    document["classes"]["pointwise"]["nvidia"]["numbers"]["floor_us"] = 0.0


def too_far(document) -> None:
    document["spread"]["lower"] = 1.01


def no_pointwise(document) -> None:
    del document["classes"]["pointwise"]


def of_another_schema(document) -> None:
    document["schema"] = "audit-forecast/2"


def of_text(document) -> None:
    document["spread"]["upper"] = "2.4"


def without_spread(document) -> None:
    del document["spread"]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (drop_any, "no numbers for 'any'"),
        (too_fast, "products in 16-bit on H100 would be faster"),
        (no_floor, "pointwise on nvidia"),
        (too_far, "does not hold its own"),
        (no_pointwise, "pointwise"),
        (of_another_schema, "audit-forecast/2"),
        (of_text, "Expected `float`"),
        (without_spread, "spread"),
    ],
)
def test_a_file_that_is_wrong_is_refused(tmp_path, change, word) -> None:
    with pytest.raises(AuditProblem, match=word):
        read(changed(tmp_path, change))


def test_an_unchanged_file_is_read(tmp_path) -> None:
    assert read(changed(tmp_path, lambda document: None)) == read()


def test_a_file_that_is_cut_off_or_missing(tmp_path) -> None:
    path = tmp_path / "coefficients.json"
    path.write_text(PATH.read_text()[:500])
    with pytest.raises(AuditProblem, match="cannot be read"):
        read(path)
    with pytest.raises(AuditProblem, match="cannot be read"):
        read(tmp_path / "none.json")
