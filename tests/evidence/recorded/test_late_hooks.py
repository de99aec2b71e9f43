"""Hooks of lines, in the timing pass and with compiled functions held eager."""

from __future__ import annotations

import pytest
from auditor.rules.comp.late_hooks import LateHooks

from auditor.rule import NotLooked


def row(name, at=0, steps=9, **more):
    return {"pass": name, "step": 0, "at": at, "what": "Linear", "steps": steps, **more}


def test_a_line_has_both_passes(seen):
    rows = [row("warmup"), row("quiet"), row("eager_held", steps=7, ran=6), row("quiet", at=1)]
    first, second = seen(sites=[3, 8], late_hooks=rows, steps=[]).get(LateHooks).each
    assert (first.site.line, first.what, first.steps, first.ran) == (3, "Linear", 9, 0)
    assert (first.eager_steps, first.eager_ran, first.again) == (7, 6, False)
    assert (second.steps, second.eager_steps, second.eager_ran) == (9, 0, 0)


@pytest.mark.parametrize("name", ["quiet", "eager_held"])
def test_a_compilation_in_either_pass_counts(seen, name):
    rows = [row("quiet"), row("eager_held", ran=9)]
    rows = [each | {"again": each["pass"] == name} for each in rows]
    (found,) = seen(sites=[3], late_hooks=rows, steps=[]).get(LateHooks).each
    assert found.again


def test_without_the_eager_pass_nothing_was_looked_at(seen):
    with pytest.raises(NotLooked, match="held eager"):
        seen(sites=[3], late_hooks=[row("quiet"), row("warmup")], steps=[]).get(LateHooks)
