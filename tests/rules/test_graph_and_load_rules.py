"""Backwards that walk again, states that are loaded, and checkpoints of activations: rules on
tables made by hand.
"""

import pytest
from auditor.rules.ckpt.files import CheckpointOverridesRate
from auditor.rules.graph.chosen import choosing
from auditor.rules.graph.left_out import NewLayerStaysFrozen
from auditor.rules.opt.gradients import ClipReadsGradientNorm

from auditor.evidence.recorded.reads import Expression, Reads
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Severity, Site
from auditor.recordings.schema.data import LoadRow, OptimizerLoadRow, RateGroup
from auditor.recordings.schema.graph import CensusRow
from tests.rules.asking import ask, placed, read

A, B, FILLED = (
    Site("t.py", line, "step", text) for line, text in ((2, "a()"), (3, "b()"), (9, ""))
)


# -- CKPT006 in a run ------------------------------------------------------------------------------


def loaded(before, after, first=None, default=None, **knobs):
    group = RateGroup(before=before, after=after, first=after if first is None else first)
    table = brought(group, default=default)
    found = ask(CheckpointOverridesRate(**knobs), table)
    return [each.message.rpartition(": ")[2] for each in found]


def brought(*groups, **more):
    facts = {"owner": "Adam", "bad": 0, "tensors": [], **more}
    load = placed(OptimizerLoadRow(at=0, groups=list(groups), **facts), A)
    return Rows[LoadRow]((load,))


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
    after = ({"lr": n + 1.0} for n in range(5))
    groups = (RateGroup(before={"lr": 0.1}, after=each, first=each) for each in after)
    (found,) = ask(CheckpointOverridesRate(), brought(*groups))
    assert found.message.endswith("0.1 by 1, 0.1 by 2, 0.1 by 3, 0.1 by 4")


# -- OPT004, AMP005 --------------------------------------------------------------------------------


CLIP = "torch/nn/utils/clip_grad.py:clip_grad_norm_"


def clipped(text, *, steps=range(12), line=1, device="cuda", more=""):
    site = Site("t.py", line, "step", text)
    reads = tuple(read(site, step, "branch", Expression(via=CLIP)) for step in steps)
    table = Reads(device, 12, reads)
    return list(ask(ClipReadsGradientNorm(), table, Source({"t.py": f"{text}\n{more}"}), Configs()))


@pytest.mark.parametrize(
    ("text", "edits", "words"),
    [
        ("clip_grad_norm_(p, 1.0, error_if_nonfinite=True)", 1, "Drop error_if_nonfinite=True"),
        ("clip_grad_norm_(p, 1.0, error_if_nonfinite=check)", 0, "Set error_if_nonfinite"),
        ("fabric.clip_gradients(m)", 0, "Let it clip without"),
    ],
)
def test_a_clip_that_reads_the_norm(text, edits, words):
    (found,) = clipped(text)
    remedy = ClipReadsGradientNorm().remedy(found)
    assert remedy.text.startswith(words) and len(remedy.edits) == edits
    assert ("which was True" in found.message) is ("check" in text)


# -- GRAPH006 and GRAPH011 -------------------------------------------------------------------------

SCRIPT = """
model = Net()
chosen = [each for name, each in model.named_parameters() if "bias" in name]
optimizer = SGD(chosen)
"""


def test_what_a_script_chooses_outside_of_functions():
    source = Source({"t.py": SCRIPT})
    assert [each.line for each in choosing(source, Site("t.py", 4, "", ""))] == [3]


FREEZING = """
def freeze(model):
    for name, each in model.named_parameters():
        each.requires_grad = "adapter" in name

"""
LATER = """
def unfreeze(model):
    model.requires_grad_()
"""


@pytest.mark.parametrize(("script", "meant"), [(FREEZING, False), (FREEZING + LATER, True)])
def test_zeros_that_another_function_unfreezes_may_be_meant(script, meant):
    row = placed(CensusRow(at=0, kind="zero", name="", other="low", n=1, steps=8), A)
    (found,) = ask(NewLayerStaysFrozen(), Rows[CensusRow]((row,)), Source({"t.py": script}))
    assert (found.site.line, found.severity == Severity.NOTE) == (4, meant)
