"""One finding for each cause and statement: what leads, what is summed, how it is silenced,
patched, selected and compared.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from auditor.reports import as_json, page
from auditor.reports.junit import Junit
from auditor.reports.sarif import Sarif
from auditor.rules.data.datasets import PinnedBatchCopiedBlocking
from auditor.rules.sync.copies import BlockingCopyEveryStep
from auditor.rules.sync.waiting import BranchOnTensor, CopyToHostEveryStep, ScalarReadEveryStep

from auditor.evidence.source.files import Statements
from auditor.evidence.table import Evidence
from auditor.judging import build_report, engine
from auditor.judging.engine import causes_of, joined
from auditor.model import Edit, Finding, FoundAt, Remedy, Report, Severity, Site, finding_key
from auditor.recordings.folder import SCHEMA, Recording, write_manifest
from auditor.recordings.writer import store_sources

LOG = """\
for i, batch in enumerate(loader):
    loss = model(batch)
    print(
        loss.item(),
        loss.max().item(), loss.min().item(),
        loss.mean().item(),
        out.cpu(),
    )
    if (
        loss.item() > 3
        or mask.any()
    ):
        break
"""
RULES = (
    BranchOnTensor,
    ScalarReadEveryStep,
    CopyToHostEveryStep,
    PinnedBatchCopiedBlocking,
    BlockingCopyEveryStep,
)


def site(line: int, source: str = LOG, file: str = "a.py") -> Site:
    return Site(file, line, "f", source.splitlines()[line - 1].strip())


def found(code: str, line: int, **more: Any) -> Finding:
    at = site(line)
    facts = {"code": code, "key": finding_key(code, at), "severity": Severity.WARNING}
    return replace(Finding(at, f"{code} at {line}", 10, 1.0, **facts), **more)


def join(*findings: Finding) -> tuple[Finding, ...]:
    return joined(findings, causes_of(RULES), Statements(lambda _: LOG.splitlines()))


# -- what is joined --------------------------------------------------------------------------------


def test_lines_of_one_statement_and_rules_of_one_cause_are_one_finding():
    (one,) = join(
        found("SYNC003", 7), found("SYNC001", 4, per_step=2.0), found("SYNC001", 5, steps=12)
    )
    assert (one.code, one.site.line, one.per_step, one.steps) == ("SYNC001", 4, 4.0, 12)
    places = [(each.code, each.site.line, each.per_step) for each in one.places]
    assert places == [("SYNC001", 4, 2), ("SYNC001", 5, 1), ("SYNC003", 7, 1)]
    assert one.message == "SYNC001 at 4; in the same statement also line 5 and line 7 (SYNC003)"
    assert (one.codes, len(one.keys), one.keys[0]) == (("SYNC001", "SYNC003"), 3, one.key)


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ([site(2)], "; see also line 2"),
        ([site(5), site(2)], "; in the same statement also line 5; see also line 2"),
        ([site(2, file="b.py")], "; see also b.py:2"),
        ([site(5, file="b.py")], "; see also b.py:5"),
    ],
)
def test_places_of_a_rules_own_say_where_they_are(others, said):
    places = [FoundAt(each, each.text, code="CFG008") for each in (site(4), *others)]
    (one,) = join(found("CFG008", 4, places=tuple(places)))
    assert one.message == f"CFG008 at 4{said}"


def test_what_another_rule_finds_on_the_very_line_is_named_by_its_code():
    compiled = replace(site(4), function="Net.f")  # as the compiler calls the function
    (one,) = join(found("SYNC001", 4), found("SYNC003", 4, site=compiled))
    assert one.message == "SYNC001 at 4; in the same statement also SYNC003"
    named = found("SYNC003", 4, site=compiled, name="tensor-copied-to-host")
    (one,) = join(found("SYNC001", 4), named)
    assert one.message.endswith("in the same statement also tensor copied to host (SYNC003)")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (found("SYNC001", 2), found("SYNC001", 4)),  # another statement
        (found("SYNC001", 4), found("DATA004", 5)),  # another cause
        (found("SYNC001", 4, basis="estimated", lost_us_per_step=5.0), found("SYNC001", 5)),
        (found("SYNC001", 4), found("SYNC001", 4, site=site(4, file="b.py"))),
        (found("SYNC001", 4, site=None), found("SYNC001", 4, site=None)),
        # A trace often knows the function alone: its line holds all waits of the function.
        (
            found("SYNC001", 4, site=Site("a.py", 4, "f")),
            found("SYNC003", 4, site=Site("a.py", 4, "f")),
        ),
        (found("SYNC002", 10), found("SYNC001", 13)),  # head and body
    ],
)
def test_what_stays_apart(one, other):
    pair = join(one, other)
    assert len(pair) == 2
    assert not any(each.places or "same statement" in each.message for each in pair)


def test_time_is_added_and_bytes_may_be_the_same_ones():
    priced = {"basis": "estimated"}
    (one,) = join(
        found("SYNC001", 4, lost_us_per_step=100.0, lost_bytes=7, **priced),
        found("SYNC001", 5, lost_us_per_step=20.0, lost_bytes=9, **priced),
        found("SYNC003", 7, **priced),
    )
    assert (one.lost_us_per_step, one.lost_bytes) == (120.0, 9)
    assert sum(each.lost_us_per_step or 0 for each in one.places) == one.lost_us_per_step
    assert join(found("SYNC001", 4), found("SYNC001", 5))[0].lost_us_per_step is None


def test_facts_that_differ_name_their_line():
    first, second = ((("seen on", "all"), ("host held", f"{us} us")) for us in (3, 1))
    (one,) = join(found("SYNC001", 4, facts=first), found("SYNC001", 5, facts=second))
    held = ("host held (line 4)", "3 us"), ("host held (line 5)", "1 us")
    assert one.facts == (("seen on", "all"), *held)


def test_remedies_are_one_and_say_each_advice_once():
    edits = [Edit(site(line), "throttle", value="50", safe=True) for line in (4, 5)]
    (one,) = join(
        found("SYNC001", 4, remedy=Remedy("log less", (edits[0],))),
        found("SYNC001", 5, remedy=Remedy("log less", (edits[1],))),
        found("SYNC003", 7, remedy=Remedy("copy less", config={"A": "1"})),
    )
    assert one.remedy == Remedy("log less SYNC003: copy less", tuple(edits), {"A": "1"})


# -- the whole way: reads of one print -------------------------------------------------------------


def recorded(
    folder: Path,
    source: str = LOG,
    lines: tuple[tuple[int, str], ...] = ((4, "item"), (5, "item"), (6, "item"), (7, "cpu")),
):
    (folder / "a.py").write_text(source)
    target = folder / "recording"
    target.mkdir(exist_ok=True)
    here = {"file": str(folder / "a.py"), "function": "f"}
    parts = {
        "sites": [{"id": n, "line": line, **here} for n, (line, _) in enumerate(lines)],
        "steps": [
            {"pass": name, "step": n, "us": 1e5, "host_us": 1e5}
            for name in ("quiet", "loud")
            for n in range(20)
        ],
        "reads": [
            {"pass": "loud", "step": step, "at": n, "kind": kind, "n": 1, "us": 10.0 * (n + 1)}
            for step in range(20)
            for n, (_, kind) in enumerate(lines)
        ],
    }
    for part, rows in parts.items():
        (target / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sources = store_sources(target, str(folder), iter([str(folder / "a.py")]))
    facts = {"schema": SCHEMA, "cwd": str(folder), "outcome": "completed", "device": "cuda"}
    write_manifest(target, {**facts, "sources": sources, "steps": 20})
    return Recording(target)


READING = (ScalarReadEveryStep, BranchOnTensor, CopyToHostEveryStep)


def judged(recording: Recording, rules=READING, **more: Any) -> Report:
    return build_report.report(
        Evidence(recording), engine.judge(Evidence(recording), rules, **more), rules, note_below=0.0
    )


def test_five_reads_in_one_print_are_one_finding(tmp_path):
    report = judged(recorded(tmp_path))
    (one,) = report.findings
    assert (one.code, one.site.line) == ("SYNC001", 4)
    assert (one.per_step, one.lost_us_per_step) == (4.0, 100.0)
    assert [(each.code, each.site.line, each.lost_us_per_step) for each in one.places] == [
        ("SYNC001", 4, 10.0), ("SYNC001", 5, 20.0), ("SYNC001", 6, 30.0), ("SYNC003", 7, 40.0),
    ]  # fmt: skip
    assert [verdict.status for verdict in report.verdicts] == ["found", "clean", "found"]
    assert one.message.count("in the same statement also") == 1
    # three lines of one rule are one fact
    assert dict(one.facts)["host held (line 4)"] == "60 us per step (diagnostic pass)"


def test_the_second_selection_finds_its_own_part(tmp_path):
    (one,) = judged(recorded(tmp_path), (CopyToHostEveryStep,)).findings
    assert (one.code, one.site.line, one.places) == ("SYNC003", 7, ())
    (joint,) = judged(recorded(tmp_path)).findings
    assert joint.is_selected(("SYNC003",))
    assert not joint.is_selected(("SYNC002", "DATA"))


@pytest.mark.parametrize(
    ("line", "comment", "left"),
    [
        (4, "# audit: ignore", []),  # where the finding is shown
        (3, "# audit: ignore[SYNC]", []),  # the statement's first line
        (8, "# audit: ignore[SYNC001, SYNC003]", []),  # its last
        (6, "# audit: ignore[SYNC001]", ["SYNC003"]),
        (7, "# audit: ignore[SYNC003]", ["SYNC001"]),
        (2, "# audit: ignore[SYNC001]", ["SYNC001"]),  # another statement
        (9, "# audit: ignore[SYNC001]", ["SYNC001"]),
    ],
)
def test_a_comment_on_any_line_silences_its_rule_in_the_statement(tmp_path, line, comment, left):
    lines = LOG.splitlines()
    lines[line - 1] += f"  {comment}"
    report = judged(recorded(tmp_path, "\n".join(lines) + "\n"))
    assert [each.code for each in report.findings] == left
    assert any("nothing to silence" in said for said in report.warnings) == (line in (2, 9))


def test_ignores_of_a_file_take_their_part(tmp_path):
    (one,) = judged(recorded(tmp_path), per_file_ignores={"a.py": ("SYNC001",)}).findings
    assert (one.code, one.places) == ("SYNC003", ())


def test_expressions_of_one_line_are_parts(tmp_path):
    recording = recorded(tmp_path, lines=((5, "item"), (5, "item")))
    sites = recording.folder / "sites.jsonl"
    told = [
        json.loads(row)
        | {"opcode": "CALL", "first_line": 5, "end_line": 5, "col": begin, "end_col": end}
        for row, (begin, end) in zip(
            sites.read_text().splitlines(), ((8, 25), (27, 44)), strict=True
        )
    ]
    sites.write_text("".join(json.dumps(row) + "\n" for row in told))
    (one,) = judged(Recording(recording.folder)).findings
    assert [each.text for each in one.places] == ["loss.max().item()", "loss.min().item()"]
    assert one.message.endswith("; in the same statement also `loss.min().item()`")
    assert len(one.keys) == 1  # of one line, so a baseline of before knows it


# -- in the formats --------------------------------------------------------------------------------


def test_formats_show_the_parts(tmp_path):
    report = judged(recorded(tmp_path))
    text = as_json.Json().render(report)
    (written,) = json.loads(text)["findings"]
    parts = [(each["code"], each["file"], each["line"]) for each in written["places"]]
    assert parts == [*(("SYNC001", "a.py", line) for line in (4, 5, 6)), ("SYNC003", "a.py", 7)]
    assert as_json.load(text).findings[0].places == report.findings[0].places
    (result,) = json.loads(Sarif().render(report))["runs"][0]["results"]
    regions = [each["physicalLocation"]["region"] for each in result["relatedLocations"]]
    assert [region["startLine"] for region in regions] == [4, 5, 6, 7]
    assert Junit().render(report).count("<failure") == 2  # one for each rule that found it
    (card,) = page.cards(report)
    assert [part.share for part in card.parts] == ["<0.1%"] * 4
    assert [line.number for line in card.excerpt if line.kind == "marked"] == [4, 5, 6, 7]
    assert [each.code for each in card.pages] == ["SYNC001", "SYNC003"]
