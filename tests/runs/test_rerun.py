"""A run that failed early and a second one are read as one recording; the parent decides what the
second is for.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from auditor.errors import TargetProblem
from auditor.evidence.table import Evidence
from auditor.judging import build_report
from auditor.judging.engine import Judgement
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.recordings.schema.run import SiteRow
from auditor.recordings.schema.sync import ReadRow
from auditor.runs import child_process, rerun
from auditor.runs.course import Course, Made, quiet
from auditor.runs.plan import Audit, Plan
from auditor.runs.progress import silent
from auditor.runs.rehearsal import rehearse

PLANNED = {"warmup": 5, "quiet": 50, "trace": 5, "loud": 50, "numbers": 3, "gradients": 3}


def recorded(
    folder: Path, passes: dict[str, int], outcome: str = "raised", **more: Any
) -> Recording:
    """A recording with so many steps of each pass, and one read at line 7 in each loud step."""
    writer, start = RecordingWriter(folder), 0.0
    if "rerun" in folder.name:
        writer.adopt_sites(Recording(folder.parent).rows(SiteRow))
    for name, steps in passes.items():
        for step in range(steps):
            writer.add_fields("steps", {"pass": name, "step": step, "us": 1e5, "start_us": start})
            start += 1e5
            if name == "loud":
                at = writer.site("/p/t.py", more.get("line", 7), "step", opcode="CALL", col=4)
                writer.add(ReadRow(pass_name=name, step=step, at=at, kind="item", n=1))
    writer.add_fields("loaders", {"loader": 0, "workers": 2})
    writer.close()
    manifest = {
        "schema": SCHEMA,
        "cwd": "/p",
        "device": "cpu",
        "outcome": outcome,
        "finished": True,
        "error": {"type": "ValueError"} if outcome != "completed" else None,
        "planned": [{"name": name, "steps": steps} for name, steps in PLANNED.items()],
        "passes": [{"name": name, "steps": steps} for name, steps in passes.items()],
        "sources": {},
        "warnings": [],
    }
    write_manifest(
        folder, {**manifest, **{key: value for key, value in more.items() if key != "line"}}
    )
    return Recording(folder)


PLAN = Plan("t:step", (), 50, 5, "cpu", "", ("reads",))


class Second:
    """Stands in for the second run: what each attempt records, and what was asked of it."""

    def __init__(self, *attempts: tuple[dict[str, int], str]) -> None:
        self.attempts = list(attempts)
        self.asked: list[Plan] = []

    def __call__(self, plan: Plan, deadline: float | None, progress: Any) -> list[Recording]:
        self.asked.append(plan)
        passes, outcome = self.attempts.pop(0)
        return [recorded(Path(plan.folder), passes, outcome)]


def rerun_of(
    folder: Path, first: Recording, second: Any, deadline: float | None = None
) -> Recording:
    plan = Plan("t:step", (), 50, 5, "cpu", str(folder), ("reads",))
    rerun.rerun(plan, [first], deadline, lambda *_: None, second)
    return Recording(folder)


DIED = {"warmup": 5, "quiet": 12}
AGAIN = {"warmup": 1, "loud": 9, "gradients": 3, "numbers": 3}


def test_both_runs_are_read_as_one_recording(tmp_path: Path) -> None:
    first, second = recorded(tmp_path, DIED), Second((AGAIN, "completed"))
    whole = rerun_of(tmp_path, first, second)
    assert [(plan.fit.steps, plan.fit.kept) for plan in second.asked if plan.fit] == [
        (17, ("quiet", "warmup"))
    ]
    steps = [row["pass"] for row in whole.rows("steps")]
    assert {name: steps.count(name) for name in steps} == {
        **DIED,
        "loud": 9,
        "gradients": 3,
        "numbers": 3,
    }
    assert [row["name"] for row in whole.manifest["passes"]] == [
        "warmup",
        "quiet",
        "loud",
        "gradients",
        "numbers",
    ]
    assert (whole.manifest["outcome"], whole.manifest["error"]) == (
        "raised",
        {"type": "ValueError"},
    )
    assert whole.has("reads")
    assert len(whole.rows("reads")) == len(whole.rows(ReadRow)) == 9
    assert len(whole.rows("loaders")) == 1
    (said,) = whole.manifest["warnings"]
    assert said.startswith(
        "the target raised ValueError after 17 whole steps: it was run again up to the step "
        "before, "
    )
    assert said.endswith("and 9 of these 17 steps were diagnosed")


def test_places_have_one_number_in_both_runs(tmp_path: Path) -> None:
    first = recorded(tmp_path, {"warmup": 5, "quiet": 50, "trace": 5, "loud": 6})
    whole = rerun_of(
        tmp_path,
        first,
        Second(({"warmup": 2, "gradients": 3, "numbers": 3, "loud": 4}, "completed")),
    )
    assert [row["line"] for row in whole.rows("sites")] == [7]
    assert {row["at"] for row in whole.rows("reads")} == {0}


def test_steps_are_counted_in_the_run_that_took_them(tmp_path: Path) -> None:
    """The step that failed is one of the first run; a pass of the second run never has more steps
    than that had.
    """
    error = {"type": "ValueError", "pass_name": "trace", "step": 0}
    first = recorded(tmp_path, {"warmup": 5, "quiet": 12}, error=error)
    whole = rerun_of(
        tmp_path, first, Second(({"warmup": 1, "loud": 9, "gradients": 3, "trace": 2}, "completed"))
    )
    assert (whole.ended_in, whole.run_step("quiet", 0)) == (17, 5)
    assert (whole.run_step("loud", 0), whole.run_step("trace", 1)) == (1, 14)
    assert [len(whole.own_rows("steps")), len(whole.rows("steps"))] == [17, 31]
    run = build_report.report(Evidence(whole), Judgement((), (), ()), ()).run
    assert run.error is not None
    assert run.error.step == 17


def test_a_place_that_only_the_second_run_met_has_a_number_of_its_own(tmp_path: Path) -> None:
    recorded(tmp_path, {"loud": 2})
    recorded(tmp_path / "rerun", {"loud": 2}, line=9)
    manifest = Recording(tmp_path).manifest
    write_manifest(tmp_path, {**manifest, "rerun": {"passes": ["loud"], "steps": 2}})
    whole = Recording(tmp_path)
    assert [whole.site_row(row["at"]).line for row in whole.rows("reads")] == [9, 9]


def test_a_folder_that_leads_into_itself_is_read_once(tmp_path: Path) -> None:
    recorded(tmp_path, {"quiet": 2}, rerun={"passes": ["loud"], "steps": 2})
    (tmp_path / "rerun").symlink_to(tmp_path)
    assert len(Recording(tmp_path).rows("steps")) == 2


@pytest.mark.parametrize(
    ("outcome", "again"),
    [("completed", 0), ("interrupted", 0), ("raised", 1), ("oom", 1), ("killed", 1)],
)
def test_which_outcomes_are_run_again(tmp_path: Path, outcome: str, again: int) -> None:
    second = Second((AGAIN, "completed"))
    rerun_of(tmp_path, recorded(tmp_path, DIED, outcome), second)
    assert len(second.asked) == again


@pytest.mark.parametrize(
    ("passes", "finished", "missing"),
    [
        ({"warmup": 5, "quiet": 3}, True, ("trace", "loud", "numbers", "gradients")),
        ({"warmup": 5, "quiet": 2}, True, ("quiet", "trace", "loud", "numbers", "gradients")),
        ({"warmup": 5, "quiet": 50, "trace": 5, "loud": 6}, True, ("numbers", "gradients")),
        ({"warmup": 5, "quiet": 50, "trace": 5, "loud": 5}, True, ("loud", "numbers", "gradients")),
        (
            {"warmup": 5, "quiet": 50, "trace": 5, "loud": 49},
            False,
            ("loud", "numbers", "gradients"),
        ),  # its last rows are lost
        ({"warmup": 5, "quiet": 50, "trace": 5, "loud": 50, "numbers": 1}, True, ("gradients",)),
        (
            {"warmup": 5, "quiet": 50, "trace": 5, "loud": 50, "numbers": 2},
            False,
            ("numbers", "gradients"),
        ),
    ],
)
def test_what_the_second_run_is_for(
    tmp_path: Path, passes: dict[str, int], finished: bool, missing: tuple[str, ...]
) -> None:
    early = rerun.Early.of([recorded(tmp_path, passes, finished=finished)])
    assert early is not None
    assert early.missing == missing
    assert early.steps == sum(passes.values())


def test_a_failure_in_the_last_pass_leaves_nothing_to_run_again(tmp_path: Path) -> None:
    assert rerun.Early.of([recorded(tmp_path, {**PLANNED, "gradients": 2})]) is None


@pytest.mark.parametrize(
    ("passes", "said"),
    [
        ({}, "before a whole step was recorded: there is no step to run again"),
        (
            {"warmup": 3},
            "after 3 whole steps: too few to run them again and judge them (4 are needed)",
        ),
    ],
)
def test_too_few_steps_are_said(tmp_path: Path, passes: dict[str, int], said: str) -> None:
    second = Second()
    whole = rerun_of(tmp_path, recorded(tmp_path, passes), second)
    assert second.asked == []
    assert said in whole.manifest["warnings"][0]


@pytest.mark.parametrize(("left", "again"), [(1.0, 0), (1000.0, 1)])
def test_no_second_run_where_the_time_left_is_too_short(
    tmp_path: Path, left: float, again: int
) -> None:
    second = Second((AGAIN, "completed"))
    whole = rerun_of(tmp_path, recorded(tmp_path, DIED), second, time.monotonic() + left)
    assert len(second.asked) == again
    assert ("the time given is used up" in whole.manifest["warnings"][0]) is not again


def test_one_that_fails_earlier_is_done_again_up_to_there_and_said(tmp_path: Path) -> None:
    second = Second(({"warmup": 1, "loud": 4}, "raised"), ({"warmup": 1, "loud": 3}, "completed"))
    whole = rerun_of(tmp_path, recorded(tmp_path, DIED), second)
    assert [plan.fit.steps for plan in second.asked if plan.fit] == [17, 5]
    (said,) = whole.manifest["warnings"]
    assert (
        "and 3 of these 5 steps were diagnosed; the second run failed too, after 5 whole steps"
        in said
    )
    assert (whole.manifest["outcome"], whole.manifest["rerun"]) == (
        "raised",
        {"passes": ["loud"], "steps": 5},
    )


def test_one_that_cannot_be_made_leaves_the_first_as_it_was(tmp_path: Path) -> None:
    def refused(*_: Any) -> list[Recording]:
        raise TargetProblem("no such module")

    whole = rerun_of(tmp_path, recorded(tmp_path, DIED), refused)
    assert "could not be made (no such module)" in whole.manifest["warnings"][0]
    assert [row["pass"] for row in whole.rows("steps")].count("quiet") == 12
    assert whole.rerun is None


def test_ctrl_c_in_the_second_run_ends_the_audit(tmp_path: Path) -> None:
    whole = rerun_of(
        tmp_path, recorded(tmp_path, DIED), Second(({"warmup": 1, "loud": 4}, "interrupted"))
    )
    assert whole.manifest["outcome"] == "interrupted"
    assert len(whole.rows("reads")) == 4


def test_the_ranks_of_one_run_share_the_steps_of_the_first_that_failed(tmp_path: Path) -> None:
    ranks = [recorded(tmp_path / "rank0", {"warmup": 5, "quiet": 14}, "killed", finished=False)]
    ranks.append(recorded(tmp_path / "rank1", DIED))
    early = rerun.Early.of(ranks)
    assert early is not None
    assert (early.steps, early.kept) == (17, ("quiet", "warmup"))


# -- the runs after it -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "after"), [("completed", "interrupted"), ("raised", "interrupted")]
)
def test_ctrl_c_in_the_rehearsal_ends_the_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str, after: str
) -> None:
    first = recorded(tmp_path, {"warmup": 5, "quiet": 12}, outcome)

    def stopped(plan: Plan, *_: Any) -> Recording:
        return recorded(
            Path(plan.folder),
            {"warmup": 2, "loud": 2},
            "interrupted",
            error={"type": "KeyboardInterrupt"},
        )

    monkeypatch.setattr(child_process, "record", stopped)
    plan = Plan("t:step", (), 50, 5, "auto", str(tmp_path), ("reads",))
    rehearse(Course(Audit(plan, ("reads",)), None, silent, quiet, [Made(plan, first)]))
    manifest = Recording(tmp_path).manifest
    assert manifest["outcome"] == after
    assert manifest["error"]["type"] == (
        "ValueError" if outcome == "raised" else "KeyboardInterrupt"
    )
    assert manifest["warnings"] == ["the rehearsal of the GPU path was interrupted"]


@pytest.mark.parametrize(
    ("outcome", "steps", "asked"),
    [("completed", 2, None), ("raised", 16, 16), ("oom", 3, 0), ("interrupted", 16, 0)],
)
def test_the_steps_before_a_failure_are_rehearsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: str, steps: int, asked: int | None
) -> None:
    wanted: list[Plan] = []

    def rehearsed(plan: Plan, *_: Any) -> Recording:
        wanted.append(plan)
        return recorded(Path(plan.folder), {"warmup": 1, "loud": 12}, "completed")

    monkeypatch.setattr(child_process, "record", rehearsed)
    plan = Plan("t:step", (), 50, 5, "auto", str(tmp_path), ("reads",))
    made = Made(plan, recorded(tmp_path, {"quiet": steps}, outcome))
    rehearse(Course(Audit(plan, ("reads",)), None, silent, quiet, [made]))
    assert [each.fit.steps if each.fit else None for each in wanted] == (
        [] if asked == 0 else [asked]
    )
