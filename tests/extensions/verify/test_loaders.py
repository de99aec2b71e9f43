"""The search for a loader's arguments: which values are tried, when one is proposed, and that the
loader really gets them.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from auditor.extensions.verify import loaders as search
from auditor.extensions.verify.budget import Budget
from auditor.extensions.verify.results import Results
from auditor.extensions.verify.trials import Measured
from auditor.model import Edit, Finding, Remedy, Site
from auditor.recordings.schema import LoaderRow
from auditor.runs.plan import Loaders, Plan, Trial

ROOT = Path(__file__).resolve().parent.parent.parent.parent
SITE = Site("train.py", 7, "", "loader = DataLoader(data)")
PRESENT = search.Present("train.py", 7, 0)
RESULTS = Results((1.0, 0.5), ())
Times = Callable[[int, int], float]


def finding(*edits: Edit) -> Finding:
    return Finding(
        SITE, "waits", code="DATA007", seen_on="cpu", remedy=Remedy("Load beside the step.", edits)
    )


class Laboratory:
    """Runs of 1 s; ``us`` says how long a step is with so many workers and batches prefetched by
    each, NaN: the run fails.
    """

    def __init__(self, us: Times, present: search.Present) -> None:
        self.us, self.present, self.asked, self.now = us, present, list[dict[str, int]](), 0.0

    def run(self, *, loaders: Loaders) -> Measured:
        self.asked.append(dict(loaders.arguments))
        self.now += 1.0
        values = self.present.values(tuple(loaders.arguments.items()))
        us = self.us(values["num_workers"], values["prefetch_factor"]) * (
            1 + 0.001 * (len(self.asked) % 5)
        )
        failed = "RuntimeError: cannot be pickled" if math.isnan(us) else ""
        return Measured(RESULTS, None if failed else us, None, 1, None, frozenset(), 0.0, failed)


def by_workers(us: dict[int, float]) -> Times:
    return lambda workers, prefetch: us[workers]


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_processors", lambda: 4)


def searched(
    us: Times,
    subject: Finding | None = None,
    budget: float = 500.0,
    present: search.Present = PRESENT,
) -> Any:
    laboratory = Laboratory(us, present)
    found, note = search.search(
        laboratory,
        subject or finding(),
        present,
        Budget(budget, lambda: laboratory.now),
        lambda text: None,
    )
    return SimpleNamespace(finding=found, note=note, asked=laboratory.asked, took=laboratory.now)


def test_the_grid_ends_at_the_processors() -> None:
    assert search.numbers(0, 4) == (1, 2, 4)
    assert search.numbers(3, 2) == (0, 1, 2)
    assert search.numbers(0, 1) == (1,)
    assert max(search.numbers(0, 500)) == search.MOST_WORKERS


def test_the_fastest_is_proposed_with_its_curve_and_in_its_patch() -> None:
    edit = Edit(SITE, "set_keyword", "DataLoader", "num_workers", "4")
    stay = Edit(SITE, "set_keyword", "DataLoader", "persistent_workers", "True")
    done = searched(by_workers({0: 10_000, 1: 8_000, 2: 5_000, 4: 7_000}), finding(edit, stay))
    assert done.finding.verified.status == "better"
    assert done.finding.verified.ratio == pytest.approx(0.5, rel=0.01)
    assert done.finding.verified.same_result is True
    assert done.finding.remedy.edits == (replace(edit, value="2"), stay)
    assert done.finding.remedy.config == {"num_workers": "2", "persistent_workers": "True"}
    (label, curve), (further, flat) = done.finding.facts
    assert label == "step time by num_workers, 3 rounds"
    assert curve.startswith("0 (now): 10 ms") and "2: 5.01 ms" in curve and "4: 7.0" in curve
    assert (
        further == "step time by prefetch_factor, 6 rounds"
        and flat.startswith("2 (now): 5.0")
        and "8: 5.0" in flat
    )
    assert done.note.endswith("num_workers=2, persistent_workers=True is the best")


def test_the_number_is_patched_where_it_is_written() -> None:
    edit = Edit(Site("settings.py", 2, "", "WORKERS = 0"), "set_constant", "", "WORKERS", "4")
    done = searched(by_workers({0: 10_000, 1: 8_000, 2: 5_000, 4: 7_000}), finding(edit))
    assert done.finding.remedy.edits == (replace(edit, value="2"),)


def test_prefetching_is_searched_with_the_workers_that_were_best() -> None:
    edit = Edit(SITE, "set_keyword", "DataLoader", "num_workers", "4", reason="other processes")
    done = searched(
        lambda workers, ahead: 10_000 / (1 + workers) / (2 if ahead == 8 else 1), finding(edit)
    )
    assert done.finding.remedy.config == {
        "num_workers": "4",
        "persistent_workers": "True",
        "prefetch_factor": "8",
    }
    assert {
        each.keyword: each.value for each in done.finding.remedy.edits
    } == done.finding.remedy.config
    assert done.finding.verified.ratio == pytest.approx(
        0.1, rel=0.01
    )  # of the program as it is, not of the step before


def test_workers_that_stay_are_searched_where_there_are_some_that_do_not() -> None:
    present = search.Present("train.py", 7, 4, prefetch=8)
    done = searched(by_workers({0: 20_000, 1: 20_000, 2: 20_000, 4: 10_000}), present=present)
    assert [label.split(",")[0] for label, _ in done.finding.facts] == [
        "step time by num_workers",
        "step time by prefetch_factor",
        "step time by persistent_workers",
    ]
    assert done.finding.facts[1][1].startswith("2: ") and "8 (now): " in done.finding.facts[1][1]
    assert "False (now): " in done.finding.facts[2][1]
    assert "none is proven faster" in done.note


def test_a_second_search_replaces_the_first_ones_curve() -> None:
    first = searched(by_workers({0: 10_000, 1: 12_000, 2: 11_000, 4: 13_000})).finding
    again = searched(by_workers({0: 20_000, 1: 22_000, 2: 21_000, 4: 23_000}), first).finding
    ((_, curve),) = again.facts
    assert curve.startswith("0 (now): 20")


def test_a_second_search_without_time_leaves_what_the_first_proved() -> None:
    faster = by_workers({0: 10_000, 1: 8_000, 2: 5_000, 4: 7_000})
    first = searched(faster).finding
    cut = searched(faster, first, budget=5.0)
    assert cut.finding == first and cut.note.endswith("what an earlier search proved stays")
    assert (
        searched(by_workers({0: 10_000, 1: 12_000, 2: 11_000, 4: 13_000}), first).finding.verified
        is None
    )


def test_where_none_is_faster_the_remedy_stays_and_the_curve_is_told() -> None:
    done = searched(by_workers({0: 10_000, 1: 12_000, 2: 11_000, 4: 13_000}))
    assert done.finding.verified is None and done.finding.remedy == finding().remedy
    assert "none is proven faster" in done.note


def test_a_number_with_which_the_target_fails_is_said_and_not_tried_again() -> None:
    done = searched(by_workers({0: 10_000, 1: math.nan, 2: 5_000, 4: 5_500}))
    assert sum(asked.get("num_workers") == 1 for asked in done.asked) == 1
    assert "1: fails, RuntimeError: cannot be pickled" in done.finding.facts[0][1]
    assert done.finding.remedy.config["num_workers"] == "2"


def test_a_target_that_fails_as_it_is_gives_no_curve() -> None:
    done = searched(by_workers({0: math.nan, 1: 1, 2: 1, 4: 1}))
    assert done.finding == finding() and "the target fails: RuntimeError" in done.note


@pytest.mark.parametrize("budget", [0.0, 1.0, 3.0, 4.5, 6.0, 9.0, 12.0, 15.5, 30.0])
def test_the_budget_holds(budget: float) -> None:
    done = searched(lambda workers, ahead: 10_000.0 - workers, budget=budget)
    assert done.took <= budget
    assert done.asked or done.note.endswith("not tried, the budget was spent before")


def test_where_the_time_is_short_only_the_most_promising_are_compared() -> None:
    done = searched(by_workers({0: 10_000, 1: 12_000, 2: 5_000, 4: 7_000}), budget=4 + 2 * 2)
    assert [asked.get("num_workers") for asked in done.asked] == [None, 1, 2, 4, 2, None, None, 2]
    assert done.finding.remedy.config["num_workers"] == "2"
    ((_, curve),) = done.finding.facts
    assert "1: 12 ms" in curve


def test_loaders_without_a_length_or_another_rules_finding_are_left_alone() -> None:
    def recording(**row: Any) -> Any:
        known = {
            "loader": 0,
            "at": 1,
            "made_at": 1,
            "workers": 0,
            "prefetch": None,
            "persistent": False,
            "length": 10,
        }
        rows = [msgspec.convert(known | row, LoaderRow)]
        return SimpleNamespace(rows=lambda part: rows, site=lambda number: SITE)

    assert search.loader_of(finding(), recording()) == PRESENT
    assert search.loader_of(finding(), recording(workers=2, prefetch=4)) == search.Present(
        "train.py", 7, 2, 4
    )
    assert search.loader_of(finding(), recording(length=None)) is None
    assert search.loader_of(finding(), recording(made_at=None)) is None
    other = Finding(SITE, "x", code="DATA009", seen_on="cpu")
    assert search.loader_of(other, recording()) is None
    elsewhere = Finding(Site("data.py", 3), "x", code="DATA007", seen_on="cpu")
    assert search.loader_of(elsewhere, recording()) is None
    dear_line = replace(elsewhere, facts=(("loader", "train.py:7"),))
    assert search.loader_of(dear_line, recording()) == PRESENT


def test_the_choice_crosses_the_process_seam() -> None:
    plan = Plan(
        "t:step",
        (),
        3,
        1,
        "cpu",
        "out",
        (),
        purpose=Trial(7, Loaders("train.py", 7, {"num_workers": 2})),
    )
    assert Plan.from_json(plan.to_json()) == plan


MADE = (
    ("Mine(data)", {"num_workers": 2, "persistent_workers": 1}, [2, 2, True]),
    ("DataLoader(data, **{})", {"num_workers": 2, "prefetch_factor": 8}, [2, 8, False]),
    (
        "DataLoader(data, num_workers=1, prefetch_factor=4, persistent_workers=True)",
        {"num_workers": 0},
        [0, None, False],
    ),
    ("DataLoader(data, num_workers=1, prefetch_factor=4)", {}, [1, 4, False]),
)
"""Calls, the arguments asked for their lines, and the workers, prefetched batches and persistence
that they get.
"""


def test_only_the_loaders_of_a_line_get_its_arguments(tmp_path: Path) -> None:
    code = """\
        import json
        from torch.utils.data import DataLoader
        class Mine(DataLoader):
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **kwargs)
        data, made = list(range(8)), []
    """
    lines = [
        *textwrap.dedent(code).splitlines(),
        *(f"made.append({call})" for call, _, _ in MADE),
        "made.append(DataLoader(data))",
    ]
    lines += [
        (
            "print(json.dumps([[m.num_workers, m.prefetch_factor, bool(m.persistent_workers)] for "
            "m in "
            "made]))"
        )
    ]
    lines += ["print([int(x) for x in made[0]] == data)"]
    (tmp_path / "train.py").write_text("\n".join(lines))
    trials = "; ".join(
        f"prepare(Trial(7, Loaders('train.py', {line}, {asked})))"
        for line, (_, asked, _) in enumerate(MADE, 7)
    )
    boot = (
        "from auditor.runs.plan import *; from auditor.capture.probes.compare.trial_setup import "
        f"prepare; {trials}"
    )
    words = [
        sys.executable,
        "-c",
        f"{boot}; import runpy; runpy.run_path('train.py', run_name='__main__')",
    ]
    done = subprocess.run(
        words, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    facts, same_data = done.stdout.splitlines()
    assert json.loads(facts) == [*(got for _, _, got in MADE), [0, None, False]]
    assert same_data == "True"
