"""What all rules about lines share: which lines they report, and what the report has of one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from auditor.rules.lines import LineRule

from auditor.evidence.recorded.lines import Lines
from auditor.evidence.recorded.step_pattern import BURST
from auditor.evidence.source.files import Source
from auditor.model import Finding, Severity, Site
from auditor.recordings.schema.graph import ZeroGradRow
from auditor.recordings.schema.sync import CallRow
from tests.inprocess import judge
from tests.rules.asking import lines

SITES = Site("t.py", 3, "step", "free()"), Site("t.py", 9, "step", "x = free()")


@dataclass(frozen=True)
class Frees(LineRule):
    """The step frees."""

    code, severity, since = "XXX001", Severity.WARNING, "0"
    advice = "Do not."

    def detect(self, calls: Lines[CallRow], source: Source) -> Iterator[Finding]:
        for line in self.usual(calls.lines()):
            yield self.report(
                line,
                f"frees on {line.pattern}",
                basis="measured",
                remedy=self.dropped(line, source, "free", reason="nobody knows"),
            )


def freed(on: Iterable[int], at: int = 0, **more: Any) -> list[CallRow]:
    return [CallRow(**{"at": at, "name": "free", "step": step, "us": 50.0, **more}) for step in on]


def found(rows: list[CallRow], of: int = 20, **knobs: Any) -> list[Finding]:
    source = Source({"t.py": "\n\nfree()\n\n\n\n\n\nx = free()\n"})
    return list(Frees(**knobs).detect(lines(*rows, sites=SITES, of=of, kind=CallRow), source))


@pytest.mark.parametrize(
    ("on", "of", "reported"),
    [
        (range(10), 20, True),  # exactly half
        (range(9), 20, False),
        (range(3), 3, True),
        (range(2), 2, False),  # two steps say nothing
        (range(20, 40), 20, False),  # did not complete
        ([], 0, False),
    ],
)
def test_a_line_is_reported_from_half_of_three_steps(
    on: Iterable[int], of: int, reported: bool
) -> None:
    assert bool(found(freed(on), of)) is reported


def test_what_comes_in_phases_and_as_often_is_reported_and_says_so() -> None:
    (finding,) = found(freed(range(0, 20, 4), n=BURST))
    assert finding.message.startswith("frees on 5 of 20 steps; 10 times in each of those")
    assert not found(freed(range(0, 20, 4), n=BURST - 1))


# -- as it runs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Clears(LineRule):
    """The step clears gradients."""

    code, severity, since = "XXX002", Severity.WARNING, "0"

    def detect(self, cleared: Lines[ZeroGradRow]) -> Iterator[Finding]:
        for line in self.usual(cleared.lines()):
            yield self.report(line, f"clears on {line.pattern}")


def clearing() -> Any:
    model = torch.nn.Linear(2, 2)
    taken = [0]

    def step() -> None:
        taken[0] += 1
        model.zero_grad()  # always
        if taken[0] % 4 == 0:
            model.zero_grad()  # now and then
        thread = Thread(target=lambda: model.zero_grad())  # elsewhere
        thread.start()
        thread.join()

    model.zero_grad()  # outside
    return step


def test_what_the_step_does_on_its_own_thread_is_reported(tmp_path: Path) -> None:
    findings, _ = judge(tmp_path / "recording", clearing, (Clears,), roots=[Path(__file__)])
    assert [finding.site.text for finding in findings] == ["model.zero_grad()  # always"]
    assert findings[0].message == "clears on 12 of 12 steps"
