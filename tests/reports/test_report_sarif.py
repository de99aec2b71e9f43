"""SARIF: valid against the schema of OASIS, identities that survive moved lines.

``sarif-schema-2.1.0.json`` is the schema as OASIS publishes it (github.com/oasis-tcs/sarif-spec,
sarif-2.1/schema).
"""

import json
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import jsonschema
import pytest
from auditor.reports import renderer

from auditor.model import Finding, Site
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


def _sarif(report):
    rendered = renderer("sarif").render(report)
    assert isinstance(rendered, str)
    return json.loads(rendered)


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_it_keeps_to_the_schema_of_oasis(report):
    problems = [
        f"{list(error.absolute_path)}: {error.message[:200]}"
        for error in VALIDATOR.iter_errors(_sarif(report))
    ]
    assert problems == []


@pytest.mark.parametrize(
    ("target", "uri"),
    [
        ("pkg.trainer:step", "pkg/trainer.py"),
        ("src/a train.py:step", "src/a%20train.py"),
        ("train.py", "train.py"),
        ("worker0.pt.trace.json.gz", "worker0.pt.trace.json.gz"),
    ],
)
def test_without_a_place_the_whole_target_is_named(target, uri):
    report = golden.rich_report()
    placeless = Finding(None, "fragmented", code="MEM004", name="fragmentation")
    written = _sarif(replace(report, run=replace(report.run, target=target), findings=(placeless,)))
    (place,) = written["runs"][0]["results"][0]["locations"]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == uri
    assert "region" not in place["physicalLocation"]


@pytest.mark.parametrize("file", ["a b/ü?#%.py", "a:b.py", "/abs/step.py", "[x].py"])
def test_paths_are_uris(file):
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
