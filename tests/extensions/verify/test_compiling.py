"""Whether torch.compile would pay, with runs that are made up: what is proposed, and what never is."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from auditor.evidence.table import Evidence
from auditor.extensions.verify import compiling
from auditor.extensions.verify.compiling import TITLE, has_compiler, search_for, selected
from auditor.extensions.verify.results import Results, largest_difference
from auditor.extensions.verify.trials import COMPILES, Budget, Compiling, Measured
from auditor.recordings.folder import Recording
from auditor.recordings.schema.run import StepRow
from auditor.runs.plan import Plan, Trial

TEXT = """import torch
from torch import nn
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
MODEL, NOW = "compiled", "unpatched"


@pytest.fixture(autouse=True)
def _with_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "has_compiler", lambda: True)


def recording(us: float = 10_000.0, text: str = TEXT, **more: Any) -> Any:
    steps = [StepRow(pass_name="quiet", step=n, us=us, start_us=n * us) for n in range(10)]
    rows: dict[str, list[Any]] = {"steps": steps, "regions": [], "compiles": [], **more}
    passes = [{"name": "quiet", "steps": 10}]
    kept = Recording(Path(), {"sources": {"train.py": "kept"}, "passes": passes, "device": "cpu"})
    vars(kept).update(
        source_bytes=lambda file: text.encode(),
        original_bytes=lambda file: text.encode(),
        relative=lambda file: file,
        rows=lambda part: rows.get(part if isinstance(part, str) else part.part, []),
        typed_rows=lambda part: rows.get(part, []),
        has=lambda part: part in rows,
    )
    return kept


class Laboratory:
    """Runs of 10 s. ``told`` has by the name of a run what differs from one that takes 10 ms a step
    and compiles for 30 s the first time.
    """

    def __init__(self, **told: dict[str, Any]) -> None:
        self.told = told
        self.now = 0.0
        self.asked: list[Compiling] = []
        self.seen: set[str] = set()

    def run(self, patched: Any = (), *, compiling: Compiling) -> Measured:
        name = compiling.name
        assert bool(patched) == (name != NOW)
        cold = 0.0 if not patched else 1e6 if name in self.seen else 30e6
        self.seen.add(name)
        self.asked.append(compiling)
        facts = {"us": 10_000.0, "loss": 1.0, "failed": "", "compile": cold, "s": 10.0}
        facts |= self.told.get(f"_{name.replace('-', '_')}", {})
        self.now += facts["s"]
        us = facts["us"] * (1 + 0.001 * (len(self.asked) % 5))
        results = Results((2.0, facts["loss"]), ())
        none = (None, None, None, frozenset[str](), 0.0)
        return Measured(results, us, *none, facts["failed"], None, facts["compile"])


def tried(budget: float = 1000.0, **told: dict[str, Any]) -> Any:
    laboratory: Any = Laboratory(**told)
    said = list[str]()
    search = search_for(Evidence(recording()))
    assert search is not None
    proposal, note = search.run(laboratory, Budget(budget, lambda: laboratory.now), said.append)
    return SimpleNamespace(proposal=proposal, note=note, said=said, asked=laboratory.asked)


def test_what_is_proven_faster_is_proposed_with_what_it_costs() -> None:
    done = tried(_compiled={"us": 6000.0, "loss": 1.00001})
    proposal = done.proposal
    assert proposal.title == TITLE
    assert "+model.compile()" in proposal.diff
    assert "A step gains 4" in proposal.text
    assert "30 s of compilation (1 s with warm caches) has paid after 7,4" in proposal.text
    assert "Losses differ by 1.0e-05 of their size at most" in proposal.text
    assert proposal.verified.ratio == pytest.approx(0.6, rel=0.01)
    assert proposal.verified.ratio_high < 1.0
    assert "rounds in another order" in proposal.verified.note
    assert [name for name, _ in proposal.curve] == ["as it is (now)", "the model"]
    assert "see the proposal" in done.note
    same = tried(_compiled={"us": 6000.0})
    assert same.proposal.text.endswith("All losses are the same.")


def test_what_is_no_gain_is_not_proposed() -> None:
    done = tried()
    assert done.proposal is None
    assert done.note.endswith("none is proven faster")
    assert "0.99" in done.note or "1.00" in done.note


def test_what_is_slower_at_once_is_not_run_again() -> None:
    done = tried(_compiled={"us": 10_700.0})
    assert [each.name for each in done.asked].count(MODEL) == 1
    assert "no faster, 10." in done.note
    near = tried(_compiled={"us": 10_400.0})
    assert [each.name for each in near.asked].count(MODEL) > 1


def test_another_result_is_dropped() -> None:
    done = tried(_compiled={"us": 6000.0, "loss": 1.1}, _compiled_drawn={"loss": 1.1})
    assert done.proposal is None
    assert "the model: dropped: another result, loss 2 is 1.1 instead of 1" in done.note


def test_random_numbers_are_made_equal_before_a_result_is_called_another() -> None:
    done = tried(_compiled={"us": 6000.0, "loss": 1.1}, _compiled_drawn={"loss": 1.0001})
    assert [each.eager_random for each in done.asked if each.name == "compiled-drawn"] == [True]
    assert "compared with random numbers as in eager code" in done.proposal.verified.note
    assert "Losses differ by 1.0e-04" in done.proposal.text


def test_a_result_beyond_the_tolerance_is_another() -> None:
    far = {"us": 6000.0, "loss": 1.002}
    assert tried(_compiled=far, _compiled_drawn=far).proposal is None


def test_a_program_that_goes_past_its_module_is_told() -> None:
    done = tried(_compiled={"us": 6000.0, "compile": 0.0})
    assert done.proposal is None
    assert "nothing was compiled" in done.note


def test_a_failure_is_told() -> None:
    done = tried(_compiled={"failed": "InvalidCxxCompiler: none"})
    assert done.proposal is None
    assert "the model: fails, InvalidCxxCompiler: none" in done.note


def test_a_program_that_does_not_run_any_more_ends_the_search() -> None:
    done = tried(_unpatched={"failed": "OSError: gone"})
    assert (done.proposal, len(done.asked)) == (None, 1)
    assert "not to be had, OSError: gone" in done.note


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        (0.0, "not tried, the budget left no time for it"),
        (10.0, "the model: dropped: the budget was spent before"),
        (25.0, "the budget was spent after 0 of 3 rounds"),
    ],
)
def test_the_budget_bounds_it(budget: float, said: str) -> None:
    done = tried(budget, _compiled={"us": 6000.0})
    assert done.proposal is None
    assert said in done.note
    assert 10.0 * len(done.asked) <= budget


def test_it_is_not_begun_where_patches_took_all_but_a_few_runs() -> None:
    """47 s are left and a run takes 16 s: no interval could come of that."""
    laboratory: Any = Laboratory()
    search = search_for(Evidence(recording()))
    assert search is not None
    for left, begun in ((47.0, False), (8 * 16.0, True)):
        budget = Budget(left, lambda: laboratory.now, {False: deque([16.0]), True: deque()})
        _, note = search.run(laboratory, budget, lambda _: None)
        assert bool(laboratory.asked) is begun
        assert ("not tried, the budget left no time for it" in note) is not begun


def test_a_first_compilation_is_ended_with_the_budget_and_later_runs_as_any() -> None:
    done = tried(500.0, _compiled={"us": 6000.0})
    (first, *later) = [each for each in done.asked if each.name == MODEL]
    assert first.patience == 490.0
    assert {each.patience for each in later} == {None}


def test_it_says_how_long_it_takes_before_it_begins() -> None:
    assert "8 runs at least" in tried(_compiled={"us": 6000.0}).said[0]
    assert tried(300.0).said[0].endswith("in the 300 s that are left")


@pytest.mark.parametrize(("us", "found"), [(2000.0, True), (1999.0, False)])
def test_short_steps_are_not_worth_it(us: float, found: bool) -> None:
    assert (search_for(Evidence(recording(us))) is not None) is found


def test_what_compiles_already_or_was_not_watched_is_left_alone() -> None:
    assert search_for(Evidence(recording(regions=[{"what": "Net"}]))) is None
    assert search_for(Evidence(recording(compiles=[{"what": "compile"}]))) is None
    older = recording()
    older.has = lambda part: part == "steps"
    assert search_for(Evidence(older)) is None


def test_a_program_without_a_place_is_left_alone() -> None:
    assert search_for(Evidence(recording(text="import torch\n"))) is None


def test_without_a_compiler_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "has_compiler", lambda: False)
    assert search_for(Evidence(recording())) is None


def test_compilers_are_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    assert not has_compiler()
    for name in ("c++", "mine"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    assert has_compiler()
    monkeypatch.setenv("CXX", "mine -O2")
    assert has_compiler()
    monkeypatch.setenv("CXX", "theirs")
    assert not has_compiler()


def test_codes_that_choose_it() -> None:
    assert [selected(each) for each in ((), ("COMP",), ("COMP010", "X"), ("COMP001",))] == [
        True,
        True,
        True,
        False,
    ]


def test_each_part_has_caches_of_its_own(tmp_path: Path) -> None:
    plan = Plan("t.py:step", (), 5, 1, "cpu", "", ("results",), purpose=Trial(7))
    one = Compiling("1", eager_random=True).plan(plan, tmp_path)
    other = Compiling("2").plan(plan, tmp_path)
    assert one.variables is not None and other.variables is not None
    assert not set(one.variables.values()) & set(other.variables.values())
    assert all(str(tmp_path) in each for each in one.variables.values())
    assert one.purpose == Trial(7, eager_random=True)
    assert (one.warmup, other.parts) == (3, ("results", COMPILES))
    assert Plan.from_json(one.to_json()) == one


def test_the_largest_difference_is_relative() -> None:
    before, after = (1.0, -2.0), (1.0, -2.002)
    assert largest_difference(before, after) == pytest.approx(0.001, rel=0.01)
    assert largest_difference(before, before) == largest_difference((), after) == 0.0
