"""The rules about work that is thrown away, at both sides of each threshold."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from auditor.rules.waste.rows import EqualCallsRow
from auditor.rules.waste.wasting import (
    ComputedTwice,
    CopiedUnread,
    GradientsClearedUnread,
    PaddingComputed,
    RebuiltEachStep,
    ResultUnread,
    ThrownWork,
    handed_on,
)

from auditor.evidence.recorded.batches import Batches, Loader
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Finding, Severity, Site
from auditor.recordings.schema.graph import ThrownRow
from tests.evidence.recorded.rows import batch
from tests.rules.asking import rows

SITE = Site("train.py", 3, "step", "")

NOTHING: dict[type, dict[str, Any]] = {
    ComputedTwice: {"equal": Rows()},
    CopiedUnread: {"deep": Rows()},
}
"""What these rules are told besides."""


def table(
    what: str,
    *,
    us: float | None = None,
    site: Site = SITE,
    further: tuple[Site, ...] = (),
    **facts: Any,
) -> ThrownWork:
    known = {"operators": 4.0, "share": 0.5, "nbytes": 1 << 20, **facts}
    lines = list(range(1, len(further) + 1))
    row = ThrownRow(what=what, at=0, steps=2, lines=lines, **known)
    return ThrownWork(tuple(rows(row, sites=(site, *further))), copied=100, us=us)


MANY = {"operators": 3.0}


@pytest.mark.parametrize(
    ("rule", "what", "facts", "n"),
    [
        (GradientsClearedUnread(), "gradient", {"share": 0.0099}, 0),
        (GradientsClearedUnread(), "gradient", {"share": 0.01}, 1),
        (GradientsClearedUnread(), "detach", {"share": 0.0099}, 0),
        (GradientsClearedUnread(), "detach", {"share": 0.01}, 1),
        (ResultUnread(), "result", {"share": 0.0199}, 0),
        (ResultUnread(), "result", {"share": 0.02}, 1),
        (CopiedUnread(), "copy", {"nbytes": 4}, 0),
        (CopiedUnread(), "copy", {"nbytes": 5}, 1),
        (RebuiltEachStep(), "constant", {"share": 0.0099}, 0),
        (RebuiltEachStep(), "constant", {"share": 0.01}, 1),
        (RebuiltEachStep(), "constant", MANY | {"nbytes": 4096}, 1),
        (RebuiltEachStep(), "constant", MANY | {"nbytes": 4095}, 0),
        (RebuiltEachStep(), "constant", {"operators": 2.0, "nbytes": 4096}, 0),
        (RebuiltEachStep(), "constant", {"operators": 1.0, "nbytes": (1 << 18) - 1}, 0),
        (RebuiltEachStep(), "constant", {"operators": 1.0, "nbytes": 1 << 18}, 1),
        (ComputedTwice(), "repeat", {"share": 0.0199, "products": 1}, 0),
        (ComputedTwice(), "repeat", {"share": 0.02, "products": 1, "nbytes": 4}, 1),
        (ComputedTwice(), "repeat", {"products": 0, "nbytes": (1 << 20) - 1}, 0),
        (ComputedTwice(), "repeat", {"products": 0, "nbytes": 1 << 20}, 1),
    ],
)
def test_thresholds(rule: Any, what: str, facts: dict[str, Any], n: int) -> None:
    """A line behind an innocent one is told, too."""
    (given,), (other,) = table(what, **facts).found, table(what, share=0.0, nbytes=0).found
    more = (Source(),) if what in ("result", "copy", "repeat") else ()
    mixed = ThrownWork((other, given, other, given), copied=100)
    calm = NOTHING.get(type(rule), {})
    assert len(list(rule.detect(mixed, Machine("rehearsal"), *more, **calm))) == 2 * n


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("gradient", "the gradients that this backward computes for"),
        ("detach", "through this call the backward at t.py:7 continues into"),
    ],
)
def test_whose_gradients_are_cleared(what: str, said: str) -> None:
    (row,) = table(what, further=(Site("t.py", 7),), other=1).found
    (found,) = GradientsClearedUnread().detect(ThrownWork((row,), 100), Machine("rehearsal"))
    assert found.message.startswith(said)


@pytest.mark.parametrize(
    ("operators", "of", "op", "n"),
    [
        (3.0, 300.0, "norm", 1),
        (2.9, 200.0, "norm", 0),
        (3.0, 301.0, "norm", 0),
        (9.0, 901.0, "norm", 0),
        (9.0, 900.0, "norm", 1),
        (9.0, 900.0, "copy", 0),
        (9.0, 0.0, "norm", 0),
    ],
)
def test_results_of_little_work_are_a_note(operators: float, of: float, op: str, n: int) -> None:
    known = replace(table("result", share=0.004, operators=operators, op=op), operators=of)
    found = list(ResultUnread().detect(known, Machine(), Source()))
    assert [each.severity for each in found] == [Severity.NOTE] * n


@pytest.mark.parametrize(
    ("line", "branch", "severities"),
    [
        ("w = w.to(device)", "if done % 10 == 0:", [Severity.NOTE]),
        ("w = w.to(device)", "if done > 10:", [Severity.NOTE]),
        ("w = w.to(device)", "if self.logs():", [Severity.NOTE]),
        ("w = w.to(device)", "if number:", [Severity.NOTE]),
        ("w = w.to(device)", "if self.weighted:", [None]),
        ("w = w.to(device)", "if isinstance(model, Net):", [None]),
        ("w = w.to(device)", "if turns:", [Severity.NOTE]),
        ("if turns: w = w.to(device)", "log(w) if turns else 0", [None]),
        ("if turns: w = w.to(device); log(w)", "if self.weighted:", [None]),
        ("v = w.to(device)", "if done % 10 == 0:", [None]),
        ("w = trainer.fit(model)", "if self.weighted:", []),
    ],
)
def test_copies_of_branches_or_libraries(
    line: str, branch: str, severities: list[Severity | None]
) -> None:
    read = "log(w)" if branch.endswith(":") else "0"
    below = "      " if branch.endswith(":") else "    "
    text = f"def step():\n  for number in it:\n    {line}\n    {branch}\n{below}{read}\n"
    text += "    turns += 1\n"
    found = CopiedUnread().detect(
        table("copy"), Machine("rehearsal"), Source({"train.py": text}), deep=Rows()
    )
    assert [each.severity for each in found] == severities


def test_constants_that_are_copied_are_told_by_others() -> None:
    known = table("constant")
    copied = ThrownWork(known.found, copied_from=frozenset({("train.py", 3)}))
    assert not list(RebuiltEachStep().detect(copied, Machine()))


def _twice(thrown: ThrownWork, *equal: EqualCallsRow, text: str = "") -> Iterator[Finding]:
    told = rows(*equal, sites=(SITE, Site("train.py", 4))) if equal else Rows()
    return ComputedTwice().detect(thrown, Machine(), Source({"train.py": text}), equal=told)


def _equal(us: float) -> EqualCallsRow:
    row = EqualCallsRow(lines=[0, 1], module="Tower", n=20, looked=8, us=us, block_us=1000.0)
    row.steps, row.all = 2, 40
    return row


@pytest.mark.parametrize(("us", "line"), [(199.0, 0), (201.0, 3)])
def test_equal_calls_of_a_loop(us: float, line: int) -> None:
    text = "def step():\n  for each in it:\n    tower(all)\ndef tower(x): return net(x)\n"
    found = list(_twice(ThrownWork(), _equal(us), text=text))
    assert [each.site.line for each in found if each.site] == [line] * bool(line)
    for each in found:
        assert "Tower (at train.py:4) 20 times" in each.message and each.per_step == 1.0
        assert each.lost_us_per_step == us / 20


def test_a_repeat_after_a_backward_is_a_note() -> None:
    (found,) = _twice(table("again", products=1))
    assert found.severity is Severity.NOTE
    (found,) = _twice(table("repeat", products=1))
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


@pytest.mark.parametrize(("n", "more"), [(2, False), (3, False), (4, True), (9, True)])
@pytest.mark.parametrize("what", ["gradient", "detach"])
def test_three_parameters_are_named(what: str, n: int, more: bool) -> None:
    names = [f"p{number}" for number in range(n)]
    unread = table(what, names=names, n=n, owner="Adam", other=0)
    (found,) = GradientsClearedUnread().detect(unread, Machine())
    assert (f"and {n - 3} more" in found.message) is more
    assert ("p2" in found.message) is (n > 2) and "p3" not in found.message


@pytest.mark.parametrize(
    ("device", "us", "price"),
    [("cpu", 1000.0, 500.0), ("cpu", None, None), ("rehearsal", 1000.0, None)],
)
def test_only_a_cpu_has_the_price(device: Any, us: float | None, price: float | None) -> None:
    (found,) = ResultUnread().detect(table("result", us=us), Machine(device), Source())
    assert (found.lost_us_per_step, found.basis) == (price, "estimated" if price else "none")


def test_further_lines_are_a_fact_and_may_be_handed_on() -> None:
    others = (Site("train.py", 4), Site("train.py", 5))
    (found,) = ResultUnread().detect(table("result", further=others), Machine(), Source())
    assert dict(found.facts)["also"] == "train.py:4, train.py:5"
    text = TRAINING.format(call="head(x)", given="told")
    far = table("result", site=Site("other.py", 1), further=(Site("train.py", 3),))
    assert not list(ResultUnread().detect(far, Machine(), Source({"train.py": text})))


def test_a_repeat_says_where_it_was_computed() -> None:
    known = table("repeat", products=1, further=(Site("train.py", 8),), other=1)
    (found,) = _twice(known)
    assert "is computed at train.py:8 as well" in found.message


def padded(width: int, *batches: tuple[int, ...], of: int | None = None) -> Batches:
    """A step with a batch for each of these, of ``of`` in all."""
    texts = [[width, *lengths] for lengths in batches]
    many = len(texts) if of is None else of
    loud = (batch(0, 0, n=many, texts=texts),)
    return Batches("cpu", (Loader(0, made_at=SITE),), loud_steps=1, loud=loud)


@pytest.mark.parametrize(
    ("batches", "severities"),
    [
        (padded(100, *[(80, 80)] * 3), [None]),
        (padded(100, *[(81, 80)] * 3), []),
        (padded(100, *[(80, 80)] * 2), []),
        (padded(100, *[(80, 80)] * 3, of=5), [None]),
        (padded(100, *[(80, 80)] * 3, of=6), []),
        (padded(100, *[(100, 10)] * 4), [Severity.NOTE]),  # 220 of 400 positions if sorted
        (padded(100, *[(100, 40)] * 4), [Severity.NOTE]),
        (padded(100, *[(100, 41)] * 4), []),
    ],
)
def test_padding(batches: Batches, severities: list[Severity | None]) -> None:
    found = list(PaddingComputed().detect(batches, Source()))
    assert [each.severity for each in found] == severities
    for each in found:
        assert PaddingComputed().remedy(each) is not None


def test_widths_of_a_compiled_program_are_a_note() -> None:
    source = Source({"train.py": "model = torch.compile(model)\n"})
    (found,) = PaddingComputed().detect(padded(100, *[(50, 9)] * 3), source)
    assert found.severity is Severity.NOTE


@pytest.mark.parametrize("name", ["nn.utils.rnn.pack_padded_sequence", "nested_tensor", "flatten"])
def test_rows_that_are_packed_waste_nothing(name: str) -> None:
    source = Source({"model.py": f"rows = {name}(tokens, lengths)\n"})
    found = list(PaddingComputed().detect(padded(100, *[(50, 9)] * 3), source))
    assert len(found) == (name == "flatten")
