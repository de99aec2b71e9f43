"""Backwards that walk again, states that are loaded, and checkpoints of activations: rules on
tables made by hand.
"""

from __future__ import annotations

import pytest
from auditor.rules.amp.half import OldMixedPrecisionApi
from auditor.rules.ckpt.ckpt006_stale_rate import CheckpointOverridesRate
from auditor.rules.graph.backward_rewalks import GraphWalkedAgain
from auditor.rules.graph.rows import RewalkRow
from auditor.rules.opt.clipping import ClipReadsGradientNorm
from msgspec.structs import replace

from auditor.evidence.recorded.amp import Amp, AmpEvent
from auditor.evidence.recorded.load_state_dict import Group, Load, Loads
from auditor.evidence.recorded.reads import Read, Reads
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.source.read_purpose import Expression
from auditor.model import Severity, Site
from tests.rules.asking import ask, loud, rows

A, B, FILLED = (
    Site("t.py", line, "step", text) for line, text in ((2, "a()"), (3, "b()"), (9, ""))
)


# -- GRAPH007 --------------------------------------------------------------------------------------


def walk(at, nodes, again=0, newer=0, *, line=None, **more):
    facts = {"summed": True, "name": "total", "file": "t.py", "function": "step"}
    return RewalkRow(at=at, nodes=nodes, again=again, newer=newer, line=line, **(facts | more))


def grown(number=3, *, line=9):
    """Calls of one line, each of which goes again through all before it."""
    return [walk(0, 10 + n, 10 * n, n, kept=True, line=line) for n in range(number)]


def walked(*seen, of=None, text="a.backward()\na.backward()\nb.backward()\n", **knobs):
    """What is said of the calls of these steps."""
    calls = [replace(call, step=step) for step, calls in enumerate(seen) for call in calls]
    watched = loud(len(seen) if of is None else of)
    tables = rows(*calls, sites=(A, B)), watched, Source({"t.py": text})
    return list(ask(GraphWalkedAgain(**knobs), *tables))


@pytest.mark.parametrize(("steps", "n"), [(3, 1), (6, 1), (5, 1), (2, 0)])
def test_most_steps_must_grow(steps, n):
    seen = [grown() for _ in range(steps)] + [()] * (5 - steps)
    assert len(walked(*seen, of=5)) == n


@pytest.mark.parametrize("number", [2, 3, 4, 5])
def test_three_calls_tell_growth_and_four_are_counted(number):
    found = walked(grown(number))
    assert len(found) == (number >= 3)
    for each in found:
        assert ("..." in each.message) is (number > 4)
        assert each.per_step == number and [one.site.line for one in each.places] == [2, 9]


@pytest.mark.parametrize(
    ("place", "change"),
    [
        (0, {"summed": False}),
        (1, {"again": 0}),
        (2, {"newer": 1}),
        (1, {"newer": 2}),
        (1, {"at": 1}),
    ],
)
def test_what_does_not_grow(place, change):
    calls = grown()
    calls[place] = replace(calls[place], **change)
    assert walked(calls) == []


def test_the_line_itself_may_fill_the_variable_or_nobody_knows():
    (own,) = walked(grown(line=2))
    (unknown,) = walked(grown(line=None))
    assert own.places == unknown.places == ()
    assert len(walked(grown(line=None)[:2] + grown()[2:])[0].places) == 2


def shared(again=5, first=None, **more):
    """Two losses over one part: the second walks it again."""
    return [walk(0, 10, **({"kept": True} | (first or {}))), walk(1, 10, again, **more)]


@pytest.mark.parametrize(("again", "n"), [(5, 1), (4, 0), (9, 1)])
def test_a_quarter_of_the_nodes_is_worth_a_note(again, n):
    found = walked(shared(again))
    assert len(found) == n
    for each in found:
        assert each.severity is Severity.NOTE and len(each.places) == 2


@pytest.mark.parametrize(
    "calls",
    [
        shared(0),
        shared(summed=False),
        shared(newer=1),
        shared(first={"kept": False}),
        shared(first={"summed": False}),
        shared()[:1],
    ],
)
def test_what_is_no_shared_part(calls):
    assert walked(calls) == []


def test_calls_before_and_after_the_part_do_not_count():
    other = walk(1, 90)
    (found,) = walked([other, *shared(), other])
    assert found.per_step == 2.0 and found.site == A


def test_losses_with_something_between_them_are_silent():
    assert walked(shared(), text="a.backward()\na.backward()\nb.step()\n") == []
    other = [shared(), (), (), shared()]
    assert walked(*other) == []
    assert len(walked(*other, share=0.5)) == 1


# -- CKPT006 in a run ------------------------------------------------------------------------------


def loaded(before, after, first=None, default=None, **knobs):
    group = Group(before, after, after if first is None else first)
    load = Load(A, "optimizer", "Adam", groups=(group,), default=default)
    return [
        each.message.rpartition(": ")[2]
        for each in ask(CheckpointOverridesRate(**knobs), Loads((load,)))
    ]


@pytest.mark.parametrize(
    ("before", "after", "more", "said"),
    [
        ({"lr": 0.1}, {"lr": 0.1}, {}, []),
        ({"lr": 0.1}, {"lr": 0.2}, {}, ["0.1 by 0.2"]),
        ({"lr": 0.1}, {"lr": 0.05}, {}, []),  # it may have been lowered by hand
        ({"lr": 0.1}, {"lr": 0.1001}, {}, []),
        ({"lr": 0.1}, {"lr": 0.1002}, {}, ["0.1 by 0.1002"]),
        ({"lr": 0.1}, {"lr": 0.1002}, {"tolerance": 0.01}, []),
        ({"lr": 0.1}, {"lr": 0.2}, {"first": {"lr": 0.1}}, []),  # set again
        ({"lr": 0.1}, {"lr": 0.2}, {"default": 0.1}, []),
        ({"lr": 0.1}, {"lr": 0.05, "initial_lr": 0.05}, {}, ["0.1 by 0.05"]),
        ({"lr": 0.1, "initial_lr": 0.3}, {"lr": 0.1, "initial_lr": 0.2}, {}, ["0.3 by 0.2"]),
        ({"lr": 0.1, "max_lr": 0.3}, {"lr": 0.1, "max_lr": 0.2}, {}, ["0.3 by 0.2"]),
        ({"lr": 0.1}, {"lr": 0.1, "max_lr": 0.2}, {}, []),
        ({"lr": 0.0}, {"lr": 0.1}, {}, []),
        ({}, {"lr": 0.1}, {}, []),
        ({"lr": 0.1}, {}, {}, []),
        (
            {"lr": 0.1, "initial_lr": 0.3},
            {"lr": 0.1, "initial_lr": 0.2},
            {"first": {"lr": 0.1, "initial_lr": 0.3}},
            [],
        ),
    ],
)
def test_a_rate_that_was_replaced(before, after, more, said):
    assert loaded(before, after, **more) == said


def test_four_of_the_rates_are_named():
    groups = tuple(Group({"lr": 0.1}, {"lr": n + 1.0}, {"lr": n + 1.0}) for n in range(5))
    load = Load(A, "optimizer", "Adam", groups=groups)
    (found,) = ask(CheckpointOverridesRate(), Loads((load, Load(B, "module", "Net"))))
    assert found.message.endswith("0.1 by 1, 0.1 by 2, 0.1 by 3, 0.1 by 4")
    assert found.facts[0] == ("group 0, lr", "set 0.1, loaded 1, at the first step 1")
    bare = Load(
        A, "optimizer", "Adam", groups=(Group({"lr": 1}, {"lr": 2, "max_lr": 1}, {"lr": 2}),)
    )
    assert list(ask(CheckpointOverridesRate(), Loads((bare,)))) == []


# -- OPT004, AMP005 --------------------------------------------------------------------------------


CLIP = "torch/nn/utils/clip_grad.py:clip_grad_norm_"


def clipped(text, *, steps=range(12), line=1, device="cuda", more=""):
    site = Site("t.py", line, "step", text)
    reads = tuple(
        Read(
            site,
            "item",
            "branch",
            step,
            tensor_device=device,
            grad=1,
            expression=Expression(via=CLIP),
        )
        for step in steps
    )
    table = Reads(device, 12, reads)
    return list(ask(ClipReadsGradientNorm(), table, Source({"t.py": f"{text}\n{more}"}), Configs()))


@pytest.mark.parametrize(
    ("text", "edits", "words"),
    [
        ("clip_grad_norm_(p, 1.0, error_if_nonfinite=True)", 1, "Drop error_if_nonfinite=True"),
        ("clip_grad_norm_(p, 1.0, error_if_nonfinite=check)", 0, "Let error_if_nonfinite be"),
        ("fabric.clip_gradients(m)", 0, "Have it clip without"),
    ],
)
def test_a_clip_that_reads_the_norm(text, edits, words):
    (found,) = clipped(text)
    remedy = ClipReadsGradientNorm().remedy(found)
    assert remedy.text.startswith(words) and len(remedy.edits) == edits
    assert ("which was True" in found.message) is ("check" in text)


@pytest.mark.parametrize("device", ["cuda", "rehearsal"])
def test_the_deprecated_scaler_is_told_once(device):
    events = tuple(AmpEvent("old_scaler", site, 3) for site in (A, B))
    source = Source({"t.py": "x = 1\nscaler = GradScaler()\n"})
    (found,) = ask(OldMixedPrecisionApi(), Amp(12, events), source)
    assert found.site.line == 2
    (bare,) = ask(OldMixedPrecisionApi(), Amp(12, events), Source())
    assert bare.site == A and OldMixedPrecisionApi().remedy(bare).edits == ()
