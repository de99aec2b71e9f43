"""TRAIN007 at both sides of its thresholds."""

import pytest
from auditor.rules.train.layers import LayerCannotLearn
from auditor.rules.train.rows import LayerRow

from auditor.model import Severity, Site
from tests.rules.asking import ask, rows

SITE = Site("t.py", 3, "forward", "x = self.conv(x)")
OTHER = Site("t.py", 4, "forward", "x = F.relu(x)")
FACTS = {
    "input": {"layer": "conv.weight", "given": 50.0, "least": 1.0, "most": 90.0, "made": 20.0},
    "dead": {"layer": "body.weight", "units": 20, "dead": 16, "steps": 8, "samples": 64},
    "saturated": {"layer": "sigmoid", "edge": 1e-3, "samples": 64},
}


def row(kind, *, at=0, step=0, **changed):
    return LayerRow(at=at, kind=kind, step=step, **(FACTS[kind] | changed))


def found(*given, **knobs):
    return list(ask(LayerCannotLearn(**knobs), rows(*given, sites=(SITE, OTHER))))


@pytest.mark.parametrize(
    ("kind", "changed", "knobs", "number"),
    [
        ("input", {}, {}, 1),
        ("input", {"given": 49.9}, {}, 0),
        ("input", {"given": 49.9}, {"given": 49.0}, 1),
        ("input", {"made": 19.9}, {}, 0),
        ("input", {"made": 19.9}, {"made": 19.0}, 1),
        ("input", {"ratio": 1.11}, {}, 1),
        ("input", {"ratio": 1.09}, {}, 0),
        ("input", {"ratio": 0.92}, {}, 0),
        ("input", {"ratio": 1.09}, {"alike": 1.05}, 1),
        ("dead", {}, {}, 1),
        ("dead", {"dead": 15}, {}, 0),
        ("dead", {"dead": 15}, {"dead": 0.75}, 1),
        ("dead", {"units": 16, "dead": 16}, {}, 1),
        ("dead", {"units": 15, "dead": 14}, {}, 0),
        ("dead", {"units": 15, "dead": 14}, {"fewest_units": 15}, 1),
        ("dead", {"units": 1, "dead": 1}, {}, 1),
        ("dead", {"steps": 7}, {}, 0),
        ("dead", {"steps": 7}, {"fewest_steps": 7}, 1),
        ("dead", {"samples": 63}, {}, 0),
        ("dead", {"samples": 63}, {"fewest": 63}, 1),
        ("saturated", {}, {}, 1),
        ("saturated", {"edge": 1.1e-3}, {}, 0),
        ("saturated", {"edge": 1.1e-3}, {"edge": 2e-3}, 1),
        ("saturated", {"samples": 63}, {}, 0),
    ],
)
def test_layers_at_the_thresholds(kind, changed, knobs, number):
    assert len(found(row(kind, **changed), **knobs)) == number


@pytest.mark.parametrize(
    ("ratio", "severity"),
    [(None, Severity.NOTE), (9.9, Severity.NOTE), (0.11, Severity.NOTE), (10.0, None), (0.1, None)],
)
def test_a_range_alone_is_a_note(ratio, severity):
    (finding,) = found(row("input", ratio=ratio), row("input", step=1, layer="other"))
    assert (finding.severity, finding.steps) == (severity, 2)
    assert ("times as far as with normalized" in finding.message) is (ratio == 10.0)
    assert ("10 times less than with normalized" in finding.message) is (ratio == 0.1)
    assert LayerCannotLearn.severity is Severity.WARNING
    (lower,) = found(row("input", ratio=9.0), factor=9.0)
    assert lower.severity is None


def test_what_follows_from_the_input_is_not_a_finding_of_its_own():
    behind = row("dead", at=1), row("saturated", at=1)
    assert [each.site for each in found(row("input"), *behind)] == [SITE]
    assert [each.site for each in found(row("input", ratio=1.0), *behind)] == [OTHER]
