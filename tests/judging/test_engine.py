"""Judging: verdicts that never look alike, failures kept apart, silencing, order by price."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from auditor.rules.mem.mem003_memory_grows import MemoryGrowsEveryStep

from auditor.evidence.table import BROKEN_PROBE, Evidence, Table
from auditor.judging import engine
from auditor.model import Finding, Remedy, Severity, Site, Verdict
from auditor.model.devices import CPU, SHADOW
from auditor.recordings.folder import SCHEMA, Recording, write_manifest
from auditor.recordings.schema.run import DeviceTimeRow
from auditor.recordings.writer import store_sources
from auditor.rule import NotLooked, Rule, knob


class Clocks(Table):
    parts = ("clocks",)
    built = 0

    def __init__(self, values: list[int]) -> None:
        self.values = values

    @classmethod
    def build(cls, recording: Recording) -> Clocks:
        cls.built += 1
        return cls([row["v"] for row in recording.rows("clocks")])


class Moods(Table):
    parts = ("moods",)

    @classmethod
    def build(cls, recording: Recording) -> Moods:
        raise NotLooked("no moods on a weekday")


class Clocked(Rule):
    """Of clocks."""

    code = "TIME900"
    severity = Severity.WARNING
    since = "0.1"


@dataclass(frozen=True)
class SlowClock(Clocked):
    """A clock is slow."""

    code = "TIME901"
    limit: int = knob(3, "values from here on are slow")

    def detect(self, clocks: Clocks) -> Iterator[Finding]:
        for value in clocks.values:
            if value >= self.limit:
                site, us = Site("a.py", value, "f", f"line {value}"), float(value)
                yield Finding(site, f"clock {value}", lost_us_per_step=us, basis="measured")

    def remedy(self, finding: Finding) -> Remedy:
        return Remedy(f"wind it ({finding.message})")


@dataclass(frozen=True)
class Moody(Clocked):
    """A mood."""

    code = "TIME902"
    severity = Severity.ERROR

    def detect(self, moods: Moods) -> Iterator[Finding]:
        yield Finding(None, "never reached")


@dataclass(frozen=True)
class Broken(Clocked):
    """It breaks half way."""

    code = "TIME903"
    severity = Severity.ERROR

    def detect(self, clocks: Clocks) -> Iterator[Finding]:
        yield Finding(None, "one before it breaks")
        raise ZeroDivisionError(len(clocks.values))


@dataclass(frozen=True)
class Twice(Clocked):
    """Same text on two lines."""

    code = "TIME904"
    severity = Severity.NOTE

    def detect(self, clocks: Clocks) -> Iterator[Finding]:
        yield Finding(Site("a.py", 7, "f", "same"), "again")
        yield Finding(Site("a.py", 9, "f", "same"), "again", severity=Severity.ERROR)


@pytest.fixture
def recording(tmp_path: Path):
    def make(
        rows: str = '{"v":1}\n{"v":4}\n{"v":6}\n', source: str = "\n" * 20, part: bool = True
    ) -> Recording:
        (tmp_path / "a.py").write_text(source)
        folder = tmp_path / "recording"
        folder.mkdir(exist_ok=True)
        if part:
            (folder / "clocks.jsonl").write_text(rows)
        sources = store_sources(folder, str(tmp_path), iter([str(tmp_path / "a.py")]))
        facts = {"schema": SCHEMA, "cwd": str(tmp_path), "outcome": "completed"}
        write_manifest(folder, {**facts, "sources": sources})
        return Recording(folder)

    return make


def verdict(recording: Recording, rule: type[Rule] = SlowClock) -> Verdict:
    return engine.judge(Evidence(recording), (rule,)).verdicts[0]


@dataclass(frozen=True)
class Shared(Clocked):
    """A share of the step."""

    code = "TIME905"

    def detect(self, clocks: Clocks) -> Iterator[Finding]:
        site = Site("a.py", 3, "f", "line 3")
        yield Finding(site, "x", severity=Severity.ERROR, lost_us_per_step=90.0, basis="estimated")


@dataclass(frozen=True)
class Growing(Clocked):
    """An error that no time says."""

    code = "TIME906"

    def detect(self, clocks: Clocks) -> Iterator[Finding]:
        yield Finding(Site("a.py", 4, "f", "line 4"), "y", severity=Severity.ERROR, lost_bytes=9)


@dataclass(frozen=True)
class Always(Shared):
    """An error at any share."""

    code = "TIME907"
    severity = Severity.ERROR


@pytest.mark.parametrize(
    ("rule", "queued", "severity", "unsure"),
    [
        (Shared, 50.0, "warning", True),
        (Shared, 1.0, "error", False),
        (Growing, 50.0, "error", False),
        (Always, 50.0, "error", True),
    ],
)
def test_a_share_of_a_busy_machine_makes_no_error(recording, rule, queued, severity, unsure):
    made = recording()
    with (made.folder / "steps.jsonl").open("w") as file:
        for step in range(12):
            row = {"pass": "quiet", "step": step, "us": 100.0, "host_us": 100.0}
            file.write(json.dumps({**row, "queued_us": queued}) + "\n")
    (found,) = engine.judge(Evidence(made), (rule,)).findings
    assert found.severity == severity
    said = dict(found.facts).get("share of the step", "")
    assert said.startswith("uncertain: the machine was busy") is unsure
    assert found.lost_us_per_step == (None if rule is Growing else 90.0)


@pytest.mark.parametrize(
    ("rows", "part", "status"),
    [('{"v":1}\n', "clocks", "skipped"), ('{"v":4}\n', "clocks", "found"), ('{"v":1}\n', "moods", "clean")],
)  # fmt: skip
def test_a_probe_that_failed_makes_nothing_clean(recording, rows, part, status):
    made = recording(rows)
    probes = {"clock": {"error": "OSError: gone", "parts": [part]}}
    write_manifest(made.folder, {**made.manifest, "probes": probes})
    told = verdict(Recording(made.folder))
    why = "the probe 'clock' failed and did not see all of it (OSError: gone)"
    assert told.status == status and (told.reason == why) is (status == "skipped")


def test_same_text_on_two_lines_has_two_keys_and_a_rule_may_set_the_severity(recording):
    findings = engine.judge(Evidence(recording()), (Twice,)).findings
    assert len({f.key for f in findings}) == 2
    assert [f.severity for f in findings] == [Severity.ERROR, Severity.NOTE]


@pytest.mark.parametrize(
    ("low", "severity"), [(-1.0, Severity.WARNING), (0.0, Severity.WARNING), (1.0, Severity.ERROR)]
)
def test_what_is_not_proven_is_no_error(recording, low, severity):
    bounds = {"lost_us_per_step_low": low, "lost_us_per_step_high": 20.0, "basis": "measured"}

    class Costly(Twice):
        def detect(self) -> Iterator[Finding]:
            yield Finding(None, "x", lost_us_per_step=9.0, severity=Severity.ERROR, **bounds)

    (found,) = engine.judge(Evidence(recording()), (Costly,)).findings
    assert found.severity == severity


@pytest.mark.parametrize(
    "comment",
    [
        "# audit: ignore[TIME901]",
        "# audit: ignore[TIME]",
        "# audit: ignore",
        "# audit:ignore[SYNC001, TIME901]",
    ],
)
def test_a_comment_silences_its_line(recording, comment):
    source = "\n" * 5 + f"x = 1  {comment}\n" + "\n" * 20
    judged = engine.judge(Evidence(recording(source=source)), (SlowClock,))
    assert [f.message for f in judged.findings] == ["clock 4"]
    assert judged.warnings == ()


@pytest.mark.parametrize(
    ("code", "warnings"),
    [
        ("TIME901", ("a.py:1: nothing to silence: '# audit: ignore' has no finding on this line",)),
        ("SYNC001", ()),
    ],
)
def test_a_comment_that_silences_nothing_is_said(recording, code, warnings):
    made = recording(source=f"x = 1  # audit: ignore[{code}]\n")
    assert engine.judge(Evidence(made), (SlowClock,)).warnings == warnings


class Us(Table):
    parts = ("device_times",)

    def __init__(self, us: list[float]) -> None:
        self.us = us

    @classmethod
    def build(cls, evidence: Evidence) -> Us:
        return cls([row.us for row in evidence.rows(DeviceTimeRow)])


@dataclass(frozen=True)
class SlowDevice(Clocked):
    """A device is slow."""

    code = "TIME904"

    def detect(self, times: Us) -> Iterator[Finding]:
        yield from (Finding(None, f"{us} us") for us in times.us if us > 1.0)


@pytest.mark.parametrize(
    ("times", "status"),
    [(("1.0", "0.5"), "clean"), (("1.0", '"long"'), "skipped"), (("2.0", '"long"'), "found")],
)
def test_a_row_that_cannot_be_read_makes_nothing_clean(recording, times, status):
    made = recording()
    rows = (f'{{"pass": "quiet", "step": {n}, "us": {each}}}\n' for n, each in enumerate(times))
    (made.folder / "device_times.jsonl").write_text("".join(rows))
    told = verdict(Recording(made.folder), SlowDevice)
    assert told.status == status
    assert told.reason.startswith("line 2 of device_times.jsonl ") is (status == "skipped")


@pytest.mark.parametrize(
    ("rate", "follows", "placed"),
    [
        (2.0, "", False),  # 2 MiB a step are left: a list of arrays beside it
        (3.5, "", True),  # half a MiB a step is left, less than the rule tells
        (2.0, "GRAPH001", True),  # nodes of the kept graphs lie on the host alone
        (0.5, "GRAPH001", True),
    ],
)
def test_growth_of_the_host_has_the_line_that_grows_on_the_simulated_device(rate, follows, placed):
    """The finding is as severe as the measured one."""
    line, mib = Site("a.py", 4, "step"), 2**20
    grows = {"grows": True, "follows": follows}
    device = Finding(line, "d", lost_bytes=round(rate * mib), severity=Severity.NOTE, **grows)
    host = Finding(None, "host memory grows", steps=50, lost_bytes=4 * mib, **grows)
    told = MemoryGrowsEveryStep().tells_growth
    found = engine._placed([Finding(line, "another"), device], host, told)
    assert [each.site for each in found] == [line, line, *([] if placed else [None])]
    assert found[1].severity is (None if placed else Severity.NOTE)
    assert (("measured on the CPU", "host memory grows") in found[1].facts) is placed


def test_rules_that_are_not_asked_any_more_are_skipped_and_the_others_stand(recording):
    asked = iter([False, True, True, True])
    judged = engine.judge(
        Evidence(recording()), (SlowClock, Moody, Broken), stop=lambda: next(asked)
    )
    assert [verdict.status for verdict in judged.verdicts] == ["found", "skipped", "skipped"]
    assert {verdict.reason for verdict in judged.verdicts[1:]} == {engine.INTERRUPTED}
    assert judged.warnings == ("judging was interrupted: 2 rules did not run",)
    assert len(judged.findings) == 2


def asked(status: str, *found: Finding) -> tuple[Verdict, list[Finding]]:
    reason = f"{BROKEN_PROBE} 'reads' broke" if status == "blind" else ""
    told = "skipped" if status == "blind" else status
    return Verdict("TIME901", "clock", told, reason), list(found)  # type: ignore[arg-type]


HERE, THERE = Site("a.py", 1, "f", "here"), Site("a.py", 2, "f", "there")
TIMED = Finding(HERE, "timed", lost_us_per_step=5.0)
UNTIMED = Finding(HERE, "untimed")
COUNTED = Finding(THERE, "counted")


@pytest.mark.parametrize(
    ("everywhere", "cpu", "gpu", "status", "said"),
    [
        (True, "found", "found", "found", ["timed", "counted"]),
        (True, "found", "failed", "found", ["timed"]),
        (True, "clean", "found", "found", ["counted"]),
        (False, "found", "found", "found", ["counted", "timed"]),
        (False, "found", "clean", "found", ["timed"]),  # what was measured is true there
        (False, "found", "skipped", "found", ["timed", "untimed"]),
        (False, "found", "blind", "found", ["timed", "untimed"]),
        (False, "found", "failed", "failed", ["timed"]),
        (False, "clean", "found", "found", ["counted"]),
        (False, "clean", "clean", "clean", []),
        (False, "clean", "skipped", "clean", []),
        (False, "clean", "blind", "skipped", []),  # what a GPU would do is not known
        (False, "clean", "failed", "failed", []),
        (False, "skipped", "found", "found", ["counted"]),
        (False, "skipped", "skipped", "skipped", []),
        (False, "skipped", "failed", "failed", []),
        (False, "failed", "found", "failed", ["counted"]),
        (False, "failed", "clean", "failed", []),
    ],
)
def test_which_of_cpu_and_gpu_path_is_believed(
    monkeypatch: pytest.MonkeyPatch,
    everywhere: bool,  # noqa: FBT001 - a column
    cpu: str,
    gpu: str,
    status: str,
    said: list[str],
) -> None:
    class Ruled(SlowClock):
        rehearsed = True

    Ruled.everywhere = everywhere
    own = SimpleNamespace(recording=SimpleNamespace(device=CPU))
    on_cpu = (TIMED,) if everywhere else (TIMED, UNTIMED)
    first = asked(cpu, *on_cpu * (cpu == "found"))
    second = asked(gpu, *(COUNTED,) * (gpu == "found"))
    answer = lambda rule, of, knobs: first if of is own else second  # noqa: E731
    monkeypatch.setattr(engine, "_ask_one", answer)
    verdict, found = engine._ask(Ruled, own, SimpleNamespace(), None, {})  # type: ignore[arg-type]
    assert (verdict.status, [each.message for each in found]) == (status, said)


@pytest.mark.parametrize(
    ("null", "believed"),
    [(None, "shadow"), ("skipped", "shadow"), ("failed", "shadow"), ("found", ""), ("clean", "")],
)
def test_the_null_device_is_believed_where_it_can_tell(
    monkeypatch: pytest.MonkeyPatch, null: str | None, believed: str
) -> None:
    class Native(SlowClock):
        native = True

    shadow = Verdict("TIME901", "clock", "found", "shadow"), []
    rehearsal = SimpleNamespace(recording=SimpleNamespace(device=SHADOW))
    answer = lambda rule, of, knobs: shadow if of is rehearsal else asked(of)  # noqa: E731
    monkeypatch.setattr(engine, "_ask_one", answer)
    run = SimpleNamespace(memory=null)
    verdict, _ = engine._ask(Native, rehearsal, None, run, {})  # type: ignore[arg-type]
    assert verdict.reason == believed


@pytest.mark.parametrize(("line", "follows"), [(7, "MEM020"), (8, "")])
def test_a_finding_whose_cause_another_rule_names_at_its_line_points_to_it(line, follows):
    kept = Finding(Site("t.py", line), "kept", code="GRAPH001", remedy=Remedy("detach"))
    hooks = Finding(Site("t.py", 7), "hooks", code="MEM020", remedy=Remedy("remove"))
    causes = {"GRAPH001": "MEM020", "MEM020": ""}
    first, second = engine._following([kept, hooks], causes)
    assert (first.follows, first.remedy is None) == (follows, bool(follows))
    assert second == hooks
