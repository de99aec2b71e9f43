"""``audit compare``: what it says of two audits, when it fails a build, and what it refuses."""

import json
from dataclasses import replace

import pytest
from auditor.reports import as_json
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.model import Finding, PeakBytes, Report, Run, Site, StepTimes, Verdict, finding_key
from auditor.recordings.folder import SCHEMA, RecordingWriter, write_manifest

MANIFEST = {"schema": SCHEMA, "device": "cpu", "recorded_at": "2026-01-01", "outcome": "completed"}


def _finding(line, per_step=2.0):
    site = Site("train.py", 7, "step", line)
    said = {"code": "SYNC001", "name": "scalar-read", "key": finding_key("SYNC001", site)}
    return Finding(site, f"`{line}` reads", 50, per_step, **said)


def _report(step_us, *findings, host=1 << 30):
    times = StepTimes(step_us, step_us, step_us, step_us, 50)
    about = "train:step", 50, 5, 1, "cpu", "completed", None, times, PeakBytes(None, host)
    run = Run(*about, "2.13.0", "3.11", "2026-01-01")
    return Report(run, (Verdict("SYNC001", "scalar-read", "found"),), findings)


def _audit(folder, step_us, *findings, steps=True, queued_us=0.0):
    folder.mkdir(parents=True)
    (folder / "report.json").write_bytes(as_json.Json().render(_report(step_us, *findings)))
    if steps:
        recording = folder / "recording"
        write_manifest(recording, MANIFEST)
        writer = RecordingWriter(recording)
        for number in range(50):
            us = step_us * (1 + 0.01 * (number % 5)) + queued_us
            writer.add_fields(
                "steps", {"pass": "quiet", "step": number, "us": us, "queued_us": queued_us}
            )
        writer.close()
    return folder


def _compare(*arguments):
    return CliRunner().invoke(main, ["compare", *map(str, arguments)])


def test_a_proven_regression_fails_and_one_within_the_noise_does_not(tmp_path):
    before, slower = _audit(tmp_path / "before", 1000), _audit(tmp_path / "slower", 1400)
    little = _audit(tmp_path / "little", 1080)
    assert _compare(before, slower, "--max-regression", "5%").exit_code == 1
    unproven = _compare(before, little, "--max-regression", "5")
    assert unproven.exit_code == 0
    assert "do not prove it" in unproven.stderr
    assert _compare(slower, before, "--max-regression", "0%").exit_code == 0
    assert _compare(before, slower).exit_code == 0


def test_several_runs_prove_what_one_cannot(tmp_path):
    for number in range(5):
        _audit(tmp_path / "before" / str(number), 1000 + number)
        _audit(tmp_path / "after" / str(number), 1080 + number)
    found = _compare(tmp_path / "before", tmp_path / "after", "--max-regression", "5%")
    assert found.exit_code == 1
    assert "5 runs and 5 runs" in found.stdout


def test_waiting_for_the_processor_is_no_regression(tmp_path):
    before = _audit(tmp_path / "before", 1000)
    held_up = _audit(tmp_path / "after", 1000, queued_us=900)
    facts = json.loads(_compare(before, held_up, "--json").stdout)
    assert facts["ratio"]["ratio"] == pytest.approx(1.0)


def test_a_report_alone_has_no_interval_and_says_so(tmp_path):
    before, alone = _audit(tmp_path / "before", 1000), _audit(tmp_path / "alone", 2000, steps=False)
    assert "no interval" in _compare(before, alone).stdout
    refused = _compare(before, alone, "--max-regression", "5%")
    assert refused.exit_code == 2
    assert str(alone) in refused.stderr


def test_a_recording_of_another_run_beside_a_report_is_not_used(tmp_path):
    before, other = _audit(tmp_path / "before", 1000), _audit(tmp_path / "other", 2000)
    write_manifest(other / "recording", {**MANIFEST, "recorded_at": "2025-05-05"})
    assert "no interval" in _compare(before, other).stdout


@pytest.mark.parametrize("bound", ["much", "-3%"])
def test_a_bound_that_is_none_is_refused(tmp_path, bound):
    assert _compare(tmp_path, tmp_path, f"--max-regression={bound}").exit_code == 2


def test_what_is_no_audit_is_refused_in_one_sentence(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        refused = _compare(path, path)
        assert refused.exit_code == 2
        assert refused.stderr.startswith(f"audit: {path}")


def test_what_else_differs_is_said(tmp_path):
    before, after = _audit(tmp_path / "before", 1000), _audit(tmp_path / "after", 1000)
    done = _compare(before, _changed(after, torch="2.6.0"))
    assert "the two differ in their torch, 2.13.0 and 2.6.0" in done.stdout
    assert done.stderr == ""
    assert "torch, 2.13.0" in json.loads(_compare(before, after, "--json").stdout)["differs"][0]


# -- unlike runs -----------------------------------------------------------------------------------


def _changed(folder, environment=None, **run):
    """Another report in the folder of an audit: its run changed in these fields."""
    report = as_json.load((folder / "report.json").read_bytes())
    changed = replace(
        report, run=replace(report.run, **run), environment=environment or report.environment
    )
    (folder / "report.json").write_bytes(as_json.Json().render(changed))
    return folder


def _steps(folder, first, n, us=1000.0):
    """An audit of ``n`` steps after ``first`` of warm-up; step ``k`` takes ``us * (1 + k)``."""
    _audit(folder, us, steps=False)
    _changed(folder, steps=n, warmup=first)
    passes = [{"name": "warmup", "steps": first}, {"name": "quiet", "steps": n}]
    write_manifest(folder / "recording", {**MANIFEST, "passes": passes})
    writer = RecordingWriter(folder / "recording")
    for number in range(n):
        writer.add_fields(
            "steps", {"pass": "quiet", "step": number, "us": us * (1 + first + number)}
        )
    writer.close()
    return folder


TRACE = {"recorded_at": "", "device": "NVIDIA A100"}


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ({}, {"target": "other:step"}, "train:step and other:step are different programs"),
        ({}, {"target": "train:other"}, "different programs"),
        ({}, TRACE, "a run and a trace"),
        (TRACE, {"device": "snapshot"}, "a trace and a memory snapshot"),
        ({"device": "checkpoint"}, {}, "a scan of checkpoints and a run"),
        ({"device": "rehearse"}, TRACE, "a rehearsal and a trace"),
    ],
)
def test_what_has_nothing_in_common_is_refused_in_one_sentence(tmp_path, one, other, said):
    before, after = (
        _changed(_audit(tmp_path / "a", 1000), **one),
        _changed(_audit(tmp_path / "b", 1000), **other),
    )
    for more in ((), ("--json",), ("--max-regression", "5%")):
        refused = _compare(before, after, *more)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr.startswith("audit: the two cannot be compared: ")
        assert said in refused.stderr


@pytest.mark.parametrize("other", ["./train.py:step", "train.py:step", "/elsewhere/train.py:step"])
def test_one_program_by_another_name_is_compared(tmp_path, other):
    before, after = (
        _audit(tmp_path / "a", 1000),
        _changed(_audit(tmp_path / "b", 1000), target=other),
    )
    assert "ratio 1.000" in _compare(before, after).stdout


@pytest.mark.parametrize(
    ("run", "environment", "reason", "rows"),
    [
        (
            {"device": "cuda"},
            {},
            "on cpu and on cuda",
            {"step_us", "peak_bytes.host", "peak_bytes.device", "syncs_per_step"},
        ),
        ({"device": "rehearse"}, {}, "a rehearsal gives no times", {"step_us", "peak_bytes.host", "syncs_per_step"}),
        ({"world_size": 4}, {}, "in 1 and in 4 processes", {"step_us", "peak_bytes.host", "syncs_per_step"}),
        ({}, {"processor": "B"}, "on other processors: A and B", {"step_us"}),
        ({}, {"torch_threads": "8"}, "numbers of threads: 1 and 8", {"step_us"}),
        ({"steps": 20}, {}, "20 after 5 of warm-up", {"peak_bytes.host", "syncs_per_step"}),
        ({"outcome": "raised"}, {}, "one of the two ended early", {"peak_bytes.host", "syncs_per_step"}),
    ],
)  # fmt: skip
def test_a_row_that_cannot_be_compared_says_so_in_the_table(
    tmp_path, run, environment, reason, rows
):
    facts = {"processor": "A", "torch_threads": "1"}
    before = _changed(_audit(tmp_path / "a", 1000, _finding("a.item()")), facts)
    after = _changed(
        _audit(tmp_path / "b", 3000, _finding("b.item()")), {**facts, **environment}, **run
    )
    done = _compare(before, after)
    assert done.exit_code == 0
    assert done.stderr == ""
    barred = [line for line in done.stdout.splitlines() if "not compared: " in line]
    assert any(reason in line for line in barred)
    facts_as_json = json.loads(_compare(before, after, "--json").stdout)
    assert rows <= facts_as_json["not_compared"].keys()
    assert "findings" not in facts_as_json["not_compared"]
    assert "findings: 1 new, 1 gone, 0 kept" in done.stdout or run.get("device") == "rehearse"
    judged = _compare(before, after, "--max-regression", "5%")
    if "step_us" in rows:
        assert facts_as_json["ratio"] is None and "ratio" not in done.stdout
        assert (judged.exit_code, judged.stdout) == (2, "")
        assert reason in judged.stderr and "\n" not in judged.stderr.strip().partition("\n")[0]
    else:
        assert judged.exit_code == 1


def test_only_the_steps_that_both_timed_are_compared(tmp_path):
    """Later steps take longer here: all steps of each would be a regression that is none."""
    before, after = _steps(tmp_path / "a", 5, 20), _steps(tmp_path / "b", 10, 50)
    done = _compare(before, after, "--max-regression", "5%")
    assert done.exit_code == 0
    assert "ratio 1.000" in done.stdout and "steps 11 to 25, which both sides timed" in done.stdout
    assert json.loads(_compare(before, after, "--json").stdout)["steps_in_common"] == {
        "first": 10,
        "last": 24,
    }


@pytest.mark.parametrize(("first", "compared"), [(20, True), (21, False), (40, False)])
def test_fewer_than_five_steps_in_common_are_none(tmp_path, first, compared):  # noqa: FBT001
    before, after = _steps(tmp_path / "a", 5, 20), _steps(tmp_path / "b", first, 20)
    done = _compare(before, after, "--max-regression", "5%")
    assert done.exit_code == (0 if compared else 2)
    shown = _compare(before, after).stdout
    assert ("other steps of the program were timed" in shown) is not compared


def test_reports_alone_with_other_numbers_of_steps_have_no_times_to_compare(tmp_path):
    before, after = (
        _audit(tmp_path / "a", 1000, steps=False),
        _audit(tmp_path / "b", 1000, steps=False),
    )
    done = _compare(before, _changed(after, steps=20))
    assert (
        "not compared: 50 and 20 steps, and the times of single steps are not there" in done.stdout
    )


def test_a_rule_that_looked_on_one_side_only_finds_nothing_new(tmp_path):
    before, after = (
        _audit(tmp_path / "a", 1000, _finding("a.item()")),
        _audit(tmp_path / "b", 1000, _finding("a.item()")),
    )
    report = as_json.load((after / "report.json").read_bytes())
    other = replace(_finding("c.item()"), code="DATA007", key="DATA007:x")
    verdicts = (*report.verdicts, Verdict("DATA007", "waits", "found"))
    (after / "report.json").write_bytes(
        as_json.Json().render(
            replace(report, findings=(*report.findings, other), verdicts=verdicts)
        )
    )
    done = _compare(before, after)
    assert "findings: 0 new, 0 gone, 1 kept" in done.stdout
    assert (
        "not compared: 1 more finding that could only be seen on one side (DATA007)" in done.stdout
    )
    assert (
        len(json.loads(_compare(before, after, "--json").stdout)["findings"]["not_compared"]) == 1
    )


def test_what_a_rehearsal_cannot_see_is_not_gone_in_it(tmp_path):
    rehearsed = replace(_finding("b.item()"), seen_on="rehearsal")
    before = _audit(tmp_path / "a", 1000, _finding("a.item()"), rehearsed)
    after = _changed(_audit(tmp_path / "b", 1000), device="rehearse")
    facts = json.loads(_compare(before, after, "--json").stdout)["findings"]
    assert [each["message"] for each in facts["gone"]] == ["`b.item()` reads"]
    assert [each["message"] for each in facts["not_compared"]] == ["`a.item()` reads"]


def test_a_folder_of_unlike_runs_is_refused(tmp_path):
    for number in range(3):
        _audit(tmp_path / "many" / str(number), 1000)
    _changed(tmp_path / "many" / "1", device="cuda")
    refused = _compare(tmp_path / "many", tmp_path / "many" / "0")
    assert refused.exit_code == 2
    assert "holds audits of unlike runs" in refused.stderr and "cuda" in refused.stderr


def test_what_a_stranger_wrote_steers_no_terminal(tmp_path):
    before, after = _audit(tmp_path / "a", 1000), _audit(tmp_path / "b", 1000)
    _changed(after, torch="\x1b[2J2.6", device="\x1b[1mcuda")
    shown = _compare(before, after)
    refused = _compare(before, _changed(after, target="\x1b]0;x\x07"))
    assert "\x1b" not in shown.stdout + shown.stderr + refused.stderr
