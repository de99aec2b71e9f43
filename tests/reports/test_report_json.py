"""report.json keeps to its schema, comes back whole, and refuses what is no report."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest
from auditor.reports import as_json, schema
from hypothesis import given
from hypothesis import strategies as st

from auditor.model import (
    Edit,
    Excerpt,
    Finding,
    FoundAt,
    PeakBytes,
    Remedy,
    Report,
    Run,
    SeenOn,
    Severity,
    Site,
    StepTimes,
    TargetError,
    Verdict,
)
from auditor.model.charts import Bar, Layers, Parts, Series, Tone
from auditor.model.sections import Verified
from auditor.model.what_if import PricedFix, WhatIf
from tests.reports import golden_attack
from tests.reports import golden_report as golden

VALIDATOR = jsonschema.Draft202012Validator(schema.schema())
REPORTS = {
    "rich": golden.rich_report(),
    "silent": golden.silent_report(),
    "failed": golden.failed_report(),
    "attack": golden_attack.attack_report(),
}

numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 2**53)
words = st.text(max_size=20)
names = st.dictionaries(words, words, max_size=2)
sites = st.builds(Site, words, counts, words, words)


def _tuples(inner):
    return st.lists(inner, max_size=2).map(tuple)


def _maybe(inner):
    return st.none() | inner


times = numbers.map(abs)
edits = st.builds(Edit, site=sites, call=words, keyword=words, value=words, reason=words)
remedies = st.builds(
    Remedy,
    text=st.text(min_size=1, max_size=20),
    edits=_tuples(edits),
    config=_maybe(names),
    diff=_maybe(words),
    refused=_maybe(words),
)
findings = st.builds(
    Finding,
    site=_maybe(sites),
    message=words,
    steps=counts,
    per_step=numbers,
    lost_us_per_step=_maybe(numbers),
    lost_bytes=_maybe(counts),
    grows=st.booleans(),
    seen_on=st.sampled_from(get_args(SeenOn)),
    severity=st.sampled_from(Severity),
    facts=_tuples(st.tuples(words, words)),
    code=words,
    name=words,
    key=words,
    places=_tuples(
        st.builds(
            FoundAt,
            site=sites,
            text=words,
            per_step=numbers,
            lost_us_per_step=_maybe(numbers),
            lost_bytes=_maybe(counts),
            code=words,
            key=words,
        )
    ),
    remedy=_maybe(remedies),
    verified=_maybe(
        st.builds(
            Verified,
            step_us_before=numbers,
            step_us_after=numbers,
            ratio=numbers,
            ratio_low=numbers,
            ratio_high=numbers,
            peak_bytes_before=_maybe(counts),
            peak_bytes_after=_maybe(counts),
        )
    ),
)
tones = st.builds(Tone, words, st.integers(-1, 99))
runs = st.builds(
    Run,
    target=words,
    steps=counts,
    warmup=counts,
    world_size=counts,
    device=words,
    error=_maybe(st.builds(TargetError, words, words, words, _maybe(counts), words, _maybe(sites))),
    step_us=_maybe(
        st.builds(
            StepTimes,
            numbers,
            numbers,
            numbers,
            numbers,
            counts,
            _maybe(numbers),
            _maybe(numbers),
            numbers,
        )
    ),
    peak_bytes=st.builds(PeakBytes, _maybe(counts), _maybe(counts)),
    torch=words,
    python=words,
    recorded_at=words,
)
reports = st.builds(
    Report,
    run=runs,
    verdicts=_tuples(st.builds(Verdict, code=words, name=words, reason=words)),
    findings=_tuples(findings),
    warnings=_tuples(words),
    cautions=_tuples(words),
    tool=names,
    schema=st.just("audit-report/1"),
    environment=names,
    method=_tuples(words),
    series=_tuples(st.builds(Series, words, words, _tuples(numbers), _tuples(numbers), _maybe(st.tuples(numbers, words)))),
    operators=_tuples(st.tuples(words, counts, numbers)),
    excerpts=st.dictionaries(words, st.builds(Excerpt, words, counts, _tuples(words)), max_size=2),
    manual=names,
    what_if=_maybe(
        st.builds(
            WhatIf, times, times, times, times,
            _tuples(st.builds(PricedFix, words, words, words, words, times, times)), words,
        )
    ),
    layers=_tuples(
        st.builds(
            Layers, words, words, st.sampled_from(("us", "event")), _tuples(numbers), _tuples(tones), _tuples(_tuples(counts)),
            _tuples(counts), _tuples(st.tuples(numbers, words)), counts, _tuples(words),
        )
    ),
    parts=_maybe(
        st.builds(
            Parts, words, words, _tuples(words), _tuples(tones), _tuples(st.builds(Bar, counts, numbers, numbers, counts, words)), _tuples(words),
        )
    ),
)  # fmt: skip


@given(reports)
def test_any_report_keeps_to_the_schema_and_comes_back_the_same(report):
    written = as_json.Json().render(report)
    VALIDATOR.validate(json.loads(written))
    read = as_json.load(written)
    assert read == report
    assert as_json.Json().render(read) == written


@pytest.mark.parametrize("name", REPORTS)
def test_golden_reports_keep_to_the_schema(name):
    VALIDATOR.validate(json.loads(as_json.Json().render(REPORTS[name])))


@pytest.mark.parametrize("name", as_json.UNWRITTEN)
def test_what_is_not_written_is_not_read_either(name):
    written = json.loads(as_json.Json().render(golden.rich_report()))
    written["findings"][0][name] = [["waits", "50"]]
    found = as_json.load(json.dumps(written).encode()).findings[0]
    assert getattr(found, name) in ({}, ())


def test_the_contract_fields_stand_first_and_in_order():
    written = json.loads(as_json.Json().render(golden.rich_report()))
    assert list(written)[:6] == ["schema", "tool", "run", "verdicts", "findings", "warnings"]
    finding = written["findings"][0]
    assert list(finding) == [
        "key", "code", "name", "severity", "message", "site", "steps", "per_step", "lost_us_per_step",
        "lost_us_per_step_low", "lost_us_per_step_high", "lost_bytes", "basis", "seen_on", "facts", "remedy", "verified", "grows",
        "negligible", "follows", "baseline_state", "places",
    ]  # fmt: skip
    assert finding["facts"][0] == ["waits", "50"]
    assert finding["remedy"]["safe"] is True
    assert finding["remedy"]["edits"][0]["line"] == 142
    without = next(each for each in written["findings"] if not each["remedy"]["text"])
    assert without["remedy"] == {
        "text": "",
        "safe": False,
        "diff": None,
        "config": None,
        "refused": None,
        "edits": [],
    }
    assert written["findings"][1]["site"] is None
    assert written["run"]["error"] is None


def test_every_written_field_is_documented():
    written = json.loads(as_json.Json().render(golden.rich_report()))
    strict = _closed(schema.schema())
    jsonschema.Draft202012Validator(strict).validate(written)
    documented = set(schema.schema()["properties"]) | set(as_json.UNWRITTEN_OF_REPORT)
    assert documented == {field.name for field in fields(Report)}
    assert not documented - set(written) - set(as_json.UNWRITTEN_OF_REPORT)


def _closed(node):
    """The schema with unknown fields forbidden."""
    if isinstance(node, list):
        return [_closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    closed = {name: _closed(item) for name, item in node.items()}
    return (
        closed | {"additionalProperties": False}
        if isinstance(node.get("properties"), dict) and "type" in node
        else closed
    )


def test_gaps_in_a_series_come_back_as_nan():
    report = replace(
        golden.silent_report(), series=(Series("quiet", "us", (0.0, 1.0), (math.nan, 2.0)),)
    )
    (line,) = as_json.load(as_json.Json().render(report)).series
    assert math.isnan(line.y[0])
    assert line.y[1] == 2.0


def test_lone_surrogates_do_not_stop_the_report():
    report = replace(golden.silent_report(), warnings=("name \udc80",))
    assert as_json.load(as_json.Json().render(report)).warnings == ("name \\udc80",)


def test_fields_of_a_later_version_are_passed_over():
    written = json.loads(as_json.Json().render(golden.rich_report()))
    written["later"] = written["findings"][0]["later"] = {"x": 1}
    assert as_json.load(json.dumps(written).encode()).findings[0].code == "SYNC001"


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b"[]", "it names no schema"),
        (b'{"schema": "audit-report/2"}', "audit-report/2"),
        (b'{"schema": "audit-report/1"}', "does not keep to audit-report/1"),
    ],
)
def test_what_is_not_a_report_is_refused_in_one_sentence(data, says):
    with pytest.raises(ValueError, match=says) as refused:
        as_json.load(data)
    assert "\n" not in str(refused.value)


def test_an_oversized_report_is_refused_unread(monkeypatch):
    monkeypatch.setattr(as_json, "SIZE_LIMIT", 10)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        as_json.load(b"{" * 11)


@pytest.mark.parametrize(("value", "fits"), [(2**64 - 1, True), (2**64, False), (-(2**64), False)])
def test_a_number_that_no_float_holds_is_refused(value, fits):
    written = json.loads(as_json.Json().render(golden.rich_report()))
    written["findings"][0]["steps"] = value
    if fits:
        assert as_json.load(json.dumps(written).encode()).findings[0].steps == value
    else:
        with pytest.raises(ValueError, match="more than 64 bits"):
            as_json.load(json.dumps(written).encode())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.data(), json_values)
def test_a_report_with_any_part_replaced_loads_or_is_refused(data, value):
    written = json.loads(as_json.Json().render(golden.rich_report()))
    node: Any = written
    while True:
        key = data.draw(
            st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node)))
        )
        if isinstance(node[key], (dict, list)) and node[key] and data.draw(st.booleans()):
            node = node[key]
            continue
        node[key] = value
        break
    try:
        as_json.load(json.dumps(written).encode())
    except ValueError:
        pass


def test_the_documentation_is_that_of_the_schema():
    page = Path(__file__).parents[2] / "docs" / "report-json.md"
    assert page.read_text("utf-8") == schema.markdown(), (
        "run: python -m auditor.reports.schema > docs/report-json.md"
    )


def test_a_forecast_price_of_0_2_is_none():
    written = json.loads(as_json.Json().render(golden.rich_report()))
    written["findings"][0] |= {"basis": "forecast", "lost_us_per_step": None, "unpriced": ""}
    written |= {"forecast": {"gpus": []}, "lanes": [{"kind": "timeline"}]}
    bases = [finding.basis for finding in as_json.load(json.dumps(written).encode()).findings]
    assert bases.count("none") == 1 + [f["basis"] for f in written["findings"]].count("none")
