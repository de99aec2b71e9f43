"""Ranks that meet through files."""

import json
import threading
from pathlib import Path

import pytest

from auditor.errors import AuditProblem
from auditor.runs.launchers import Launched
from auditor.runs.rank_meeting import DONE, Mark, RankMeeting


def meetings(place, ranks=3, job="abc"):
    return [RankMeeting(place, Launched(rank, ranks, job)) for rank in range(ranks)]


def joined(others):
    found: dict[int, Path | None] = {}

    def join(each):
        found[each.own.rank] = each.join(30)

    threads = [threading.Thread(target=join, args=(each,)) for each in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[each.own.rank] for each in others]


def test_all_ranks_are_told_one_folder_and_nothing_is_left(tmp_path):
    first, *others = meetings(tmp_path)
    first.open(tmp_path / "results")
    assert joined(others) == [tmp_path / "results"] * 2
    for each in others:
        each.leave()
    first.close()
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_asks_before_rank_0_is_there_is_answered(tmp_path):
    first, other = meetings(tmp_path, 2)
    late = threading.Timer(0.5, first.open, [tmp_path / "results"])
    late.start()
    assert other.join(30) == tmp_path / "results"
    late.join()
    other.leave()
    first.close()


def test_a_question_that_is_being_written_stays(tmp_path):
    """A rank writes beside, then renames: what it renames must still be there."""
    first, _, _ = meetings(tmp_path)
    (tmp_path / ".ranks-abc").mkdir()
    half = tmp_path / ".ranks-abc" / ".ask-1-x.77"
    half.touch()
    first.open(tmp_path / "results")
    assert half.exists()
    first.close()


def test_what_an_earlier_job_left_answers_nobody(tmp_path):
    left = tmp_path / ".ranks-abc"
    left.mkdir()
    (left / "told-1-old").write_text(json.dumps(str(tmp_path / "old")))
    (left / "ended-0-1").write_text(json.dumps({"completed": True, "problem": None}))
    (left / "decided-1").write_text(json.dumps(DONE))
    (left / "ask-1-old").write_text('""')
    first, other = meetings(tmp_path, 2)
    first.open(tmp_path / "new")
    assert other.join(30) == tmp_path / "new"
    assert first.marks(0) == {}
    assert other.decision(1, 0.3) == DONE  # nothing was said: not what was left
    assert not (left / "decided-1").exists()
    other.leave()
    first.close()


def test_two_jobs_in_one_place_do_not_mix(tmp_path):
    one, two = meetings(tmp_path, 2, "one"), meetings(tmp_path, 2, "two")
    one[0].open(tmp_path / "a")
    two[0].open(tmp_path / "b")
    assert joined([one[1], two[1]][:1]) == [tmp_path / "a"]
    assert joined([two[1]]) == [tmp_path / "b"]
    one[1].mark(0, Mark(completed=True))
    assert two[0].marks(0) == {}
    for first, other in (one, two):
        other.leave()
        first.close()


def test_rank_0_that_cannot_begin_tells_the_others(tmp_path):
    first, *others = meetings(tmp_path)
    refusing = threading.Thread(target=first.refuse)
    refusing.start()
    assert joined(others) == [None, None]
    refusing.join()
    assert list(tmp_path.iterdir()) == []


def test_a_rank_that_hears_nothing_says_what_to_do(tmp_path):
    _, other = meetings(tmp_path, 2)
    with pytest.raises(AuditProblem, match="rank 1 heard nothing from rank 0") as raised:
        other.join(0.3)
    assert "--out" in (raised.value.hint or "")
    assert list((tmp_path / ".ranks-abc").iterdir()) == []


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(AuditProblem, match="cannot be written"):
        meetings(tmp_path / "file", 2)[1].join(1)


def test_marks_and_decisions_reach_the_others(tmp_path):
    first, second, third = meetings(tmp_path)
    first.open(tmp_path / "results")
    second.mark(0, Mark(completed=False, problem=("no module named x (rank 1)", "install it")))
    third.mark(0, Mark(completed=True))
    assert first.marks(0) == {
        1: Mark(completed=False, problem=("no module named x (rank 1)", "install it")),
        2: Mark(completed=True),
    }
    assert first.marks(1) == {}
    first.decide(1, {"steps": 12, "variables": {}})
    assert second.decision(1, 5) == {"steps": 12, "variables": {}}
    for each in (second, third):
        each.leave()
    first.close()


def test_a_rank_that_waits_is_told_when_rank_0_goes(tmp_path):
    first, other = meetings(tmp_path, 2)
    first.open(tmp_path / "results")
    late = threading.Timer(0.5, first.close)
    late.start()
    assert other.decision(7, 60) == DONE
    late.join()
    assert other.decision(8, 60) == DONE  # nothing is left to look into
