"""The search for the number of loader workers: which are tried, when one is proposed, and that the loader really gets them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from auditor.model import Edit, Finding, Remedy, Site
from auditor.plan import Loaders, Plan, Trial
from auditor.verify import workers
from auditor.verify.results import Results
from auditor.verify.trials import Measured

ROOT = Path(__file__).resolve().parent.parent.parent
SITE = Site("train.py", 7, "", "loader = DataLoader(data)")
PRESENT = Loaders("train.py", 7, 0)
RESULTS = Results((1.0, 0.5), ())


def finding(*edits: Edit) -> Finding:
    return Finding(SITE, "waits", code="DATA007", seen_on="cpu", remedy=Remedy("Load beside the step.", edits))


class Laboratory:
    """Runs that take no time; ``us`` says how long a step is with so many workers, NaN: the run fails."""

    def __init__(self, us: dict[int, float]) -> None:
        self.us, self.asked = us, list[int]()

    def run(self, *, loaders: Loaders) -> Measured:
        self.asked.append(loaders.workers)
        us = self.us[loaders.workers] * (1 + 0.001 * (len(self.asked) % 5))
        failed = "RuntimeError: cannot be pickled" if math.isnan(us) else ""
        return Measured(RESULTS, None if failed else us, None, 1, None, frozenset(), 0.0, failed)


def searched(us: dict[int, float], monkeypatch: pytest.MonkeyPatch, subject: Finding | None = None, budget: float = 60.0) -> Any:
    monkeypatch.setattr(workers, "_processors", lambda: 4)
    laboratory = Laboratory(us)
    found = workers.search(laboratory, subject or finding(), PRESENT, time.monotonic() + budget, lambda text: None)
    return SimpleNamespace(found=found, asked=laboratory.asked)


def test_the_grid_ends_at_the_processors_and_begins_with_the_present_number() -> None:
    assert workers.numbers(0, 4) == (0, 1, 2, 4)
    assert workers.numbers(3, 2) == (3, 0, 1, 2)
    assert workers.numbers(0, 1) == (0, 1)
    assert max(workers.numbers(0, 500)) == workers.MOST_WORKERS


def test_the_fastest_is_proposed_with_its_curve_and_in_its_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    edit = Edit(SITE, "set_keyword", "DataLoader", "num_workers", "4")
    done = searched({0: 10_000, 1: 8_000, 2: 5_000, 4: 7_000}, monkeypatch, finding(edit)).found
    assert done.finding.verified.status == "better"
    assert done.finding.verified.ratio == pytest.approx(0.5, rel=0.01)
    assert done.finding.verified.same_result is True
    assert done.finding.remedy.edits[0].value == "2"
    assert done.finding.remedy.config == {"num_workers": "2"}
    ((label, curve),) = done.finding.facts
    assert label == "step time by num_workers, 6 rounds"
    assert curve.startswith("0 (now): 10.0") and "2: 5.0" in curve and "4: 7.0" in curve
    assert "2 is the best" in done.note


def test_a_second_search_replaces_the_first_ones_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    first = searched({0: 10_000, 1: 12_000, 2: 11_000, 4: 13_000}, monkeypatch).found.finding
    again = searched({0: 20_000, 1: 22_000, 2: 21_000, 4: 23_000}, monkeypatch, first).found.finding
    ((_, curve),) = again.facts
    assert curve.startswith("0 (now): 20.0")


def test_where_none_is_faster_the_remedy_stays_and_the_curve_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    done = searched({0: 10_000, 1: 12_000, 2: 11_000, 4: 13_000}, monkeypatch).found
    assert done.finding.verified is None and done.finding.remedy == finding().remedy
    assert "no other number is proven faster" in done.note


def test_a_number_with_which_the_target_fails_is_said_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    done = searched({0: 10_000, 1: math.nan, 2: 5_000, 4: 5_500}, monkeypatch)
    assert done.asked.count(1) == 1
    assert "1: fails, RuntimeError: cannot be pickled" in done.found.finding.facts[0][1]
    assert done.found.finding.remedy.config == {"num_workers": "2"}


def test_a_target_that_fails_as_it_is_gives_no_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    assert searched({0: math.nan, 1: 1, 2: 1, 4: 1}, monkeypatch).found is None


def test_without_budget_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    done = searched({}, monkeypatch, budget=-1.0)
    assert done.found is None and not done.asked


def test_loaders_without_a_length_or_another_rules_finding_are_left_alone() -> None:
    def recording(**row: Any) -> Any:
        rows = [{"loader": 0, "at": 1, "made_at": 1, "workers": 0, "length": 10} | row]
        return SimpleNamespace(rows=lambda part: rows, site=lambda number: SITE)

    assert workers.loader_of(finding(), recording()) == PRESENT
    assert workers.loader_of(finding(), recording(length=None)) is None
    assert workers.loader_of(finding(), recording(made_at=None)) is None
    other = Finding(SITE, "x", code="DATA009", seen_on="cpu")
    assert workers.loader_of(other, recording()) is None


def test_the_choice_crosses_the_process_seam() -> None:
    plan = Plan("t:step", (), 3, 1, "cpu", "out", (), trial=Trial(7, PRESENT))
    assert Plan.from_json(plan.to_json()) == plan


@pytest.mark.parametrize(
    ("written", "asked", "got"),
    [("", 2, [2, 0]), ("**{}", 2, [2, 0]), ("num_workers=1, prefetch_factor=4, persistent_workers=True", 0, [0, 0])],
)
def test_only_the_loaders_of_the_line_get_the_workers(tmp_path: Path, written: str, asked: int, got: list[int]) -> None:
    code = f"""
        import json
        from torch.utils.data import DataLoader
        class Mine(DataLoader):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
        loader = Mine(list(range(8)), {written})
        other = DataLoader(list(range(8)))
        print(json.dumps([[loader.num_workers, other.num_workers], [int(x) for x in loader]]))
    """
    (tmp_path / "train.py").write_text(textwrap.dedent(code))
    boot = f"from auditor.plan import *; from auditor.capture.trial import prepare; prepare(Trial(7, Loaders('train.py', 7, {asked})))"
    words = [sys.executable, "-c", f"{boot}; import runpy; runpy.run_path('train.py', run_name='__main__')"]
    done = subprocess.run(words, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [got, list(range(8))]
