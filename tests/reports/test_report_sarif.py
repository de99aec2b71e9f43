"""SARIF: valid against the schema of OASIS, fixes that give what the diff gives, identities that
survive moved lines.

``sarif-schema-2.1.0.json`` is the schema as OASIS publishes it (github.com/oasis-tcs/sarif-spec,
sarif-2.1/schema).
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
from auditor.reports import renderer
from auditor.reports.sarif import replacements
from hypothesis import given
from hypothesis import strategies as st

from auditor.model import Finding, Remedy, Report, Site
from auditor.patch.trees import diff_bytes
from tests.reports import golden_attack
from tests.reports import golden_report as golden

SCHEMA = json.loads((Path(__file__).parent / "sarif-schema-2.1.0.json").read_text("utf-8"))
VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(
    SCHEMA, format_checker=jsonschema.FormatChecker()
)
REPORTS = {
    "rich": golden.rich_report(),
    "silent": golden.silent_report(),
    "failed": golden.failed_report(),
    "attack": golden_attack.attack_report(),
}


def _sarif(report: Report) -> dict[str, Any]:
    rendered = renderer("sarif").render(report)
    assert isinstance(rendered, str)
    return json.loads(rendered)


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_it_keeps_to_the_schema_of_oasis(report: Report) -> None:
    problems = [
        f"{list(error.absolute_path)}: {error.message[:200]}"
        for error in VALIDATOR.iter_errors(_sarif(report))
    ]
    assert problems == []


def test_the_schema_would_notice() -> None:
    broken = _sarif(golden.rich_report())
    broken["runs"][0]["results"][0]["level"] = "fatal"
    assert not VALIDATOR.is_valid(broken)


@pytest.mark.parametrize(
    ("target", "uri"),
    [
        ("pkg.trainer:step", "pkg/trainer.py"),
        ("src/a train.py:step", "src/a%20train.py"),
        ("train.py", "train.py"),
        ("worker0.pt.trace.json.gz", "worker0.pt.trace.json.gz"),
    ],
)
def test_without_a_place_the_whole_target_is_named(target: str, uri: str) -> None:
    report = golden.rich_report()
    placeless = Finding(None, "fragmented", code="MEM004", name="fragmentation")
    written = _sarif(replace(report, run=replace(report.run, target=target), findings=(placeless,)))
    (place,) = written["runs"][0]["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == uri
    assert "region" not in place["physicalLocation"]


@pytest.mark.parametrize("file", ["a b/ü?#%.py", "a:b.py", "/abs/step.py", "[x].py"])
def test_paths_are_uris(file: str) -> None:
    report = replace(
        golden.rich_report(), findings=(Finding(Site(file, 3), "slow", code="SYNC001"),)
    )
    written = _sarif(report)
    assert VALIDATOR.is_valid(written)
    uri = written["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"][
        "uri"
    ]
    assert unquote(uri).removeprefix("file://") == file
    assert not set(uri) & set(" ?#[]ü")


# -- fixes -----------------------------------------------------------------------------------------


def _apply(source: str, changes: list[dict[str, Any]]) -> str:
    """As a SARIF viewer does it: regions are cut by line and column, from the last to the first."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for change in reversed(changes):
        region = change["deletedRegion"]
        begin = starts[region["startLine"] - 1] + region["startColumn"] - 1
        end = starts[region["endLine"] - 1] + region["endColumn"] - 1
        source = source[:begin] + change["insertedContent"]["text"] + source[end:]
    return source


lines = st.lists(
    st.sampled_from(["a = 1", "", "-- x", "++ y", "    loss.item()", "@@ -1 +1 @@", "é"]),
    max_size=12,
)


@given(lines, lines, st.booleans(), st.booleans())
def test_fixes_give_what_the_diff_gives(
    before: list[str], after: list[str], ended: bool, ends: bool
) -> None:
    old = "\n".join(before) + "\n" * (ended and bool(before))
    new = "\n".join(after) + "\n" * (ends and bool(after))
    diff = diff_bytes(old.encode(), new.encode(), "pkg/a b.py").decode()
    report = replace(
        golden.rich_report(),
        findings=(
            Finding(Site("a", 1), "x", code="SYNC001", remedy=Remedy("change it", diff=diff)),
        ),
    )
    (result,) = _sarif(report)["runs"][0]["results"]
    if old == new:
        assert "fixes" not in result
        return
    ((change,),) = [fix["artifactChanges"] for fix in result["fixes"]]
    assert change["artifactLocation"]["uri"] == "pkg/a%20b.py"
    assert _apply(old, change["replacements"]) == new
    assert VALIDATOR.is_valid(_sarif(report))


@pytest.mark.parametrize(
    "name", ["plain.py", "with space.py", 'quote".py', "tab\t.py", "ü.py", "back\\slash.py"]
)
def test_any_file_name_of_a_diff_is_read_back(name: str) -> None:
    (only,) = replacements(diff_bytes(b"a\n", b"b\n", name).decode())
    assert (only.file, only.first, only.last, only.text) == (name, 1, 1, "b\n")


@pytest.mark.parametrize(
    "diff",
    [
        "",
        "nonsense",
        "@@ -1 +1 @@\n-a\n+b\n",
        "--- x\n+++ y\n",
        "--- a/x\n+++ b/x\n@@ -1,9 +1 @@\n-a\n",
    ],
)
def test_what_is_no_diff_is_no_fix(diff: str) -> None:
    assert replacements(diff) == ()
