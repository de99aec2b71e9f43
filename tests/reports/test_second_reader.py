"""docs/report-json.md is enough to read a report: a reader written from it alone, on reports that
hold nothing else.
"""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from auditor.reports.as_json import Json

from auditor.model import Report
from tests.reports import golden_attack, second_reader
from tests.reports import golden_report as golden

PAGE = (Path(__file__).parents[2] / "docs" / "report-json.md").read_text("utf-8")


def _documented() -> dict[str, dict[str, tuple[str, bool]]]:
    """Object -> field -> (name of its object or "", required), as the page's tables say."""
    objects: dict[str, dict[str, tuple[str, bool]]] = {}
    for part in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        named = re.match(r'<a id="(\w+)"></a>|The report', part)
        assert named is not None
        fields = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*) \|$", part, re.MULTILINE)
        objects[named[1] or "report"] = {
            name: (
                (re.findall(r"\(#(\w+)\)", kind) or [""])[0],
                not meaning.startswith("*optional*"),
            )
            for name, kind, meaning in fields
        }
    return objects


OBJECTS = _documented()


def _only_documented(value: Any, name: str) -> Any:  # noqa: ANN401
    """``value`` with nothing but the required fields of the page: what a reader may lean on."""
    if isinstance(value, list):
        return [_only_documented(item, name) for item in value]
    fields = OBJECTS.get(name)
    if not isinstance(value, dict) or not fields:
        return value
    return {
        field: _only_documented(value[field], inner)
        for field, (inner, required) in fields.items()
        if required
    }


def _written(report: Report) -> Any:  # noqa: ANN401
    return _only_documented(json.loads(Json().render(report)), "report")


def test_the_page_describes_every_object() -> None:
    assert {
        "report",
        "run",
        "step_us",
        "verdict",
        "site",
        "finding",
        "remedy",
        "edit",
        "verified",
        "error",
    } <= OBJECTS.keys()
    assert set(_written(golden.rich_report())) == {
        "schema",
        "tool",
        "run",
        "verdicts",
        "findings",
        "warnings",
    }


def test_a_report_is_read_from_the_documented_fields_alone() -> None:
    lines = second_reader.summary(_written(golden.rich_report()))
    assert lines[:3] == [
        "examples.energy_flow.trainer:step: completed on cpu, torch 2.13.0+cpu, 1 process(es)",
        "step: median 38.2 ms, p95 41.0 ms of 50",
        (
            f"warning  SYNC001  {golden.TRAINER}:142  8.41 ms (measured)  safe patch  better: 38.2 "
            "to "
            "29.6 ms"
        ),
    ]
    assert f"error  GRAPH001  {golden.TRAINER}:151  560 MiB (measured)  patch to look at" in lines
    assert "warning  MEM004  -  3072 MiB (estimated)" in lines
    assert "rules: 31 clean, 1 failed, 6 found, 6 skipped" in lines


def test_a_failed_target_and_attacked_texts_are_read() -> None:
    assert second_reader.summary(_written(golden.failed_report()))[2].startswith(
        "error: RuntimeError: mat1 and mat2"
    )
    report = golden_attack.attack_report()
    assert len(second_reader.summary(_written(report))) > len(report.findings)


def test_another_schema_is_refused() -> None:
    with pytest.raises(ValueError, match="audit-report/2"):
        second_reader.summary(_written(golden.silent_report()) | {"schema": "audit-report/2"})


def test_it_runs_as_a_program_without_us(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_bytes(Json().render(golden.rich_report()))
    command = [sys.executable, "-I", second_reader.__file__, str(tmp_path / "report.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[0].startswith("examples.energy_flow.trainer:step: completed")
