"""The rules about work that is thrown away, at both sides of each threshold."""

from __future__ import annotations

from typing import Any

import pytest
from auditor.rules.waste001_gradients_cleared_unread import GradientsClearedUnread
from auditor.rules.waste002_result_unread import ResultUnread
from auditor.rules.waste003_copied_unread import CopiedUnread
from auditor.rules.waste004_rebuilt_each_step import RebuiltEachStep
from auditor.rules.waste005_computed_twice import ComputedTwice

from auditor.evidence import Machine, Source, ThrownWork
from auditor.evidence.recorded.thrown_work import Thrown, handed_on
from auditor.model import Severity, Site
from auditor.rule import NotLooked

SITE = Site("train.py", 3, "step", "")


def table(what: str, *, us: float | None = None, **facts: Any) -> ThrownWork:
    known = {"operators": 4.0, "share": 0.5, "nbytes": 1 << 20, **facts}
    return ThrownWork((Thrown(what, SITE, 2, **known),), copied=100, us=us)


@pytest.mark.parametrize(("share", "n"), [(0.0099, 0), (0.01, 1)])
def test_gradients(share: float, n: int) -> None:
    for what in ("gradient", "detach"):
        found = GradientsClearedUnread().detect(table(what, share=share), Machine())
        assert len(list(found)) == n


@pytest.mark.parametrize(("share", "n"), [(0.0199, 0), (0.02, 1)])
def test_results(share: float, n: int) -> None:
    found = ResultUnread().detect(table("result", share=share), Machine(), Source())
    assert len(list(found)) == n


@pytest.mark.parametrize(("nbytes", "n"), [(4, 0), (5, 1)])
def test_copies(nbytes: int, n: int) -> None:
    found = CopiedUnread().detect(table("copy", nbytes=nbytes), Machine("rehearsal"))
    assert len(list(found)) == n


def test_copies_are_not_looked_for_on_a_cpu() -> None:
    with pytest.raises(NotLooked):
        list(CopiedUnread().detect(table("copy"), Machine()))


@pytest.mark.parametrize(
    ("facts", "n"),
    [
        ({"share": 0.0099}, 0),
        ({"share": 0.01}, 1),
        ({"operators": 3.0, "nbytes": 4096}, 1),
        ({"operators": 3.0, "nbytes": 4095}, 0),
        ({"operators": 2.0, "nbytes": 4096}, 0),
        ({"operators": 1.0, "nbytes": (1 << 18) - 1}, 0),
        ({"operators": 1.0, "nbytes": 1 << 18}, 1),
    ],
)
def test_constants(facts: dict[str, Any], n: int) -> None:
    assert len(list(RebuiltEachStep().detect(table("constant", **facts), Machine()))) == n


def test_constants_that_are_copied_are_told_by_others() -> None:
    known = table("constant")
    copied = ThrownWork(known.found, copied_from=frozenset({("train.py", 3)}))
    assert not list(RebuiltEachStep().detect(copied, Machine()))


@pytest.mark.parametrize(
    ("facts", "n"),
    [
        ({"share": 0.0199, "products": 1}, 0),
        ({"share": 0.02, "products": 1, "nbytes": 4}, 1),
        ({"products": 0, "nbytes": (1 << 20) - 1}, 0),
        ({"products": 0, "nbytes": 1 << 20}, 1),
    ],
)
def test_repeats(facts: dict[str, Any], n: int) -> None:
    assert len(list(ComputedTwice().detect(table("repeat", **facts), Machine()))) == n


def test_the_price_is_a_share_of_the_measured_step() -> None:
    (found,) = ComputedTwice().detect(table("repeat", us=1000.0, products=1), Machine())
    assert (found.lost_us_per_step, found.basis) == (500.0, "estimated")
    (found,) = ComputedTwice().detect(table("repeat", products=1), Machine())
    assert (found.lost_us_per_step, found.basis) == (None, "none")


def test_a_repeat_after_a_backward_is_a_note() -> None:
    (found,) = ComputedTwice().detect(table("again", products=1), Machine())
    assert found.severity is Severity.NOTE
    (found,) = ComputedTwice().detect(table("repeat", products=1), Machine())
    assert found.severity is None


TRAINING = """def training_step(x):
    loss = model(x)
    extra = {call}
    loss.backward()
    told = dict(extra=extra)
    return {given}
"""


@pytest.mark.parametrize(("given", "handed"), [("told", True), ("extra", True), ("loss", False)])
def test_what_a_training_function_returns_is_its_callers(given: str, handed: bool) -> None:
    source = Source({"train.py": TRAINING.format(call="head(x)", given=given)})
    assert handed_on(source, SITE) is handed


def test_what_a_model_returns_is_not() -> None:
    text = "def forward(self, x):\n    h = self.body(x)\n    aux = self.aux(h)\n    return h, aux\n"
    assert not handed_on(Source({"train.py": text}), SITE)
