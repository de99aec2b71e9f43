"""The experiment's logic on made-up runs: what is decided when, what breaks a patch, the noise."""

import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from auditor import patch
from auditor.errors import AuditProblem
from auditor.extensions.verify.arms import Arm, Candidate
from auditor.extensions.verify.experiment import Experiment
from auditor.extensions.verify.intervals import MOST_PAIRS
from auditor.extensions.verify.trials import Budget, Measured, Results
from auditor.model import Edit, Site

CALLS = ("first", "second", "third")
SOURCE = b"first(flag=True)\nsecond(flag=True)\nthird(flag=True)\n"
RECORDING: Any = SimpleNamespace(original_bytes=lambda file: SOURCE)
STEADY = Results((1.0, 0.5), (("parameter 0", 2.0, 7),))
OTHER = Results((1.0, 0.6), (("parameter 0", 2.1, 8),))


def candidate(number, *, rehearsed=False):
    call = CALLS[number]
    site = Site("train.py", number + 1, "", f"{call}(flag=True)")
    edit = Edit(site, "drop_keyword", call, "flag", safe=True)
    files = patch.plan([edit], lambda file: SOURCE).files
    return Candidate((number,), (f"CODE00{number}",), call, (edit,), files, rehearsed)


Behaviour = Callable[[set[str], int], dict[str, Any]]


class Laboratory:
    """``behaviour(applied, run)`` says what comes out; a run takes ``takes`` s, or 1 s."""

    def __init__(self, behaviour, device="cpu"):
        self.now = 0.0
        self._behaviour = behaviour
        self._draw = random.Random(1)
        self.rehearses = device == "rehearse"
        self.steps = 30
        self.rehearsed_steps = 12
        self.runs = 0
        self.asked: list[tuple[set[str], bool]] = []

    def run(self, patched=(), *, rehearsed=False):
        text = b"".join(file.after for file in patched)
        applied = {call for call in CALLS if f"{call}()".encode() in text}
        self.runs += 1
        self.asked.append((applied, rehearsed))
        facts = {"results": STEADY, "step_us": 1000.0, "failed": "", "peak_device": None}
        facts |= {"loaded": frozenset({"train.py"})} | self._behaviour(applied, self.runs)
        self.now += facts.get("takes", 1.0)
        us = None if rehearsed else facts["step_us"] * (1 + self._draw.gauss(0, 0.001))
        results, peak, loaded = (facts[key] for key in ("results", "peak_device", "loaded"))
        return Measured(results, us, peak, 100, None, loaded, 0.0, facts["failed"])


def verify(behaviour, *candidates, budget=60.0, device="cpu"):
    laboratory: Any = Laboratory(behaviour, device)
    said: list[str] = []
    whole = Budget(budget, lambda: laboratory.now)
    given = tuple(candidate(one) if isinstance(one, int) else one for one in candidates)
    found, summary = Experiment(laboratory, RECORDING, whole, said.append).run(given)
    return SimpleNamespace(
        found=found, summary=summary, said=said, asked=laboratory.asked, took=laboratory.now
    )


def faster(applied, run):
    """``first`` halves the step; the others change nothing."""
    return {"step_us": 500.0 if "first" in applied else 1000.0}


def test_what_is_slower_is_worse_and_not_among_those_together():
    done = verify(
        lambda on, run: {"step_us": 1000.0 + 300.0 * ("second" in on) - 400.0 * ("first" in on)},
        0,
        1,
    )
    assert (done.found[0].status, done.found[1].status) == ("better", "worse")
    assert done.summary.codes == ("CODE000",)


def test_without_budget_one_round_still_checks_the_result():
    done = verify(faster, 0, 1, budget=0.0)
    assert [each.status for each in done.found.values()] == ["inconclusive", "inconclusive"]
    assert done.found[0].ratio is None
    assert done.found[0].same_result is True
    assert "the budget was spent after 1 pair of runs" in done.found[0].note
    assert done.summary.runs == 4
    assert done.summary.together is None


@pytest.mark.parametrize("budget", [0.5, 2.0, 3.0, 5.0, 7.5, 12.0, 20.0, 33.3, 60.0])
@pytest.mark.parametrize("rehearsed", [(), (2,), (0, 1, 2)])
def test_the_budget_holds_but_for_the_run_in_progress(budget, rehearsed):
    done = verify(
        lambda on, run: {},
        *(candidate(each, rehearsed=each in rehearsed) for each in range(3)),
        budget=budget,
    )
    assert done.took <= max(budget, 1.0)
    tried = {call for applied, _ in done.asked for call in applied}
    untried = " ".join(note for note in done.summary.notes if "not tried" in note)
    assert all((call in tried) != (call in untried) for call in CALLS)
    assert {0, 1, 2} - set(done.found) == {
        number for number, call in enumerate(CALLS) if call in untried
    }


@pytest.mark.parametrize(("patched", "pairs"), [(1, [3, 1, 1]), (2, [3, 3, 1])])
def test_time_for_few_intervals_goes_to_the_dearest_findings_and_not_to_halves(patched, pairs):
    done = verify(
        lambda on, run: {"step_us": 300.0 if "first" in on else 1000.0},
        *range(3),
        budget=8 + 2 * patched + 0.5,
    )
    assert done.summary.together is None
    assert [each.pairs for each in done.found.values()] == pairs
    assert done.found[0].status == "better"
    said = "not tried, the budget was spent before (a run takes 1 s): all together"
    assert said in done.summary.notes


def test_all_have_an_interval_before_any_goes_on():
    done = verify(lambda on, run: {}, *range(3), budget=26.0)
    assert [each.pairs for each in (*done.found.values(), done.summary.together)] == [5, 4, 4, 4]


def test_no_more_pairs_are_made_than_the_interval_allows_looks():
    done = verify(lambda on, run: {}, 0, budget=300.0)
    assert done.found[0].pairs <= MOST_PAIRS and done.took < 40.0


def test_a_difference_that_nobody_had_time_to_see_twice_breaks_the_patch_and_is_said():
    done = verify(lambda on, run: {"results": OTHER if on else STEADY}, 0, budget=3.0)
    assert done.found[0].status == "broken"
    assert "no time to confirm it" in done.found[0].note
    assert len(done.asked) == 3


def test_without_a_second_unpatched_run_nobody_knows_whether_results_repeat():
    done = verify(lambda on, run: {}, 0, budget=2.5)
    assert done.found[0].same_result is True
    assert any("no time to see whether the target repeats" in note for note in done.summary.notes)


def test_another_result_breaks_a_patch_and_keeps_it_out_of_the_rest():
    done = verify(
        lambda on, run: (
            {"results": OTHER, "step_us": 500.0} if "second" in on else {"results": STEADY}
        ),
        0,
        1,
    )
    broken = done.found[1]
    assert broken.status == "broken"
    assert broken.same_result is False
    assert "loss 2 is 0.6 instead of 0.5" in broken.note
    assert done.summary.codes == ("CODE000",)
    assert any("second: the patch is left out" in note for note in done.summary.notes)
    # once, and once more to be sure
    assert sum("second" in applied for applied, _ in done.asked) == 2


def test_a_difference_that_does_not_come_again_accuses_the_target_not_the_patch():
    done = verify(lambda on, run: {"results": OTHER if run == 2 else STEADY}, 0, budget=0.0)
    assert done.found[0].status == "inconclusive"
    assert done.found[0].same_result is None
    assert not done.summary.repeatable


@pytest.mark.parametrize("rehearsed", [False, True])
def test_a_target_that_is_not_repeatable_is_said_and_no_result_is_compared(*, rehearsed):
    done = verify(
        lambda on, run: {"results": Results((1.0 + run,), ())},
        candidate(0, rehearsed=rehearsed),
        budget=0.0,
    )
    assert done.found[0].same_result is None
    # times are not what a rehearsal is for
    assert done.found[0].status == ("same" if rehearsed else "inconclusive")
    assert not done.summary.repeatable
    said = "with the same seeds computed different losses"
    assert any(said in note for note in done.summary.notes)


def test_a_patch_with_which_the_target_fails_is_broken():
    done = verify(lambda on, run: {"failed": "TypeError: no flag" if "first" in on else ""}, 0)
    assert done.found[0].status == "broken"
    assert "TypeError: no flag" in done.found[0].note


def test_patches_that_only_break_together_are_said():
    done = verify(lambda on, run: {"results": OTHER if len(on) > 1 else STEADY}, 0, 1)
    assert done.summary.together.status == "broken"
    assert any("not so together" in note for note in done.summary.notes)


def test_an_unpatched_target_that_fails_is_a_problem_not_a_verdict():
    with pytest.raises(AuditProblem, match="does not run to its end any more: killed"):
        verify(lambda on, run: {"failed": "killed"}, 0)


def test_what_was_measured_before_the_target_failed_is_kept():
    done = verify(
        lambda on, run: {"failed": "it was still running after 120 s" if run == 7 else ""}, 0
    )
    assert done.summary.runs == 7
    first = done.found[0]
    assert (first.status, first.pairs, first.same_result) == ("inconclusive", 2, True)
    said = "ended before the budget was spent"
    assert any(said in note and "still running" in note for note in done.summary.notes)


def test_a_patched_file_that_the_target_does_not_use_proves_nothing():
    done = verify(lambda on, run: {"loaded": frozenset({"other.py"})}, 0)
    assert done.found == {}
    assert any("reads no train.py" in note for note in done.summary.notes)


def test_what_only_a_gpu_runs_is_checked_in_the_rehearsal_and_not_priced():
    done = verify(faster, 0, candidate(2, rehearsed=True))
    unpriced = done.found[2]
    assert unpriced.status == "same"
    assert unpriced.ratio is None
    assert unpriced.step_us_before is None
    assert unpriced.same_result is True
    assert "rehearsal" in unpriced.note
    assert ({"third"}, True) in done.asked
    assert ({"first", "third"}, False) in done.asked  # and it is among those together


def test_time_for_single_patches_is_not_spent_on_all_together():
    """Eight runs are left after a round: an interval for each patch, or for both together."""
    done = verify(lambda on, run: {"step_us": 1000.0 * 0.5 ** len(on)}, 0, 1, budget=12.5)
    assert [each.status for each in done.found.values()] == ["better", "better"]
    assert [each.pairs for each in done.found.values()] == [3, 3]
    assert done.summary.together is None or done.summary.together.status == "inconclusive"


@pytest.mark.parametrize(
    ("ratios", "pairs", "status"),
    [
        ((0.96, 1.04), 1, "inconclusive"),
        ((0.96, 1.04), 2, "inconclusive"),
        ((0.995, 1.005), 3, "same"),  # no difference, and one of 10 % would have been seen
        ((0.8, 1.3), 3, "inconclusive"),
        ((0.8, 1.3), MOST_PAIRS - 1, "inconclusive"),
        ((0.8, 1.3), MOST_PAIRS, "same"),  # no more looks are allowed
    ],
)
def test_too_few_runs_to_tell_are_inconclusive(ratios, pairs, status):
    arm = Arm(candidate(0))
    for number in range(pairs):
        one = Measured(STEADY, 1000.0, None, 100, None, frozenset({"train.py"}), 0.0)
        arm.add(one, replace(one, step_us=1000.0 * ratios[number % 2]))
    verified = arm.verified(None, repeatable=True)
    assert verified is not None
    assert verified.status == status
    assert verified.same_result is True


def test_one_pair_in_which_memory_fell_says_nothing_of_the_time():
    done = verify(
        lambda on, run: {"peak_device": 900 if on else 1000}, 0, device="cuda", budget=0.0
    )
    assert done.found[0].status == "inconclusive"


def test_less_device_memory_in_the_same_time_is_better():
    done = verify(lambda on, run: {"peak_device": 900 if "first" in on else 1000}, 0, device="cuda")
    assert done.found[0].status == "better"
    assert (done.found[0].peak_bytes_before, done.found[0].peak_bytes_after) == (1000, 900)


def test_rehearsed_patches_that_only_break_together_are_said():
    def clash(applied, run):
        return {"results": OTHER if len(applied) == 2 else STEADY}

    done = verify(clash, candidate(0, rehearsed=True), candidate(1, rehearsed=True))
    assert [each.status for each in done.found.values()] == ["same", "same"]
    assert done.summary.together.status == "broken"
    assert "not so together" in done.summary.notes[0]
