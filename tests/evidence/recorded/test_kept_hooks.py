"""Hooks that pile up: at both sides of the share and of the fewest steps."""

from __future__ import annotations

import pytest
from auditor.rules.mem.kept_hooks import KeptHook, KeptHooks

from auditor.model import Site
from tests.evidence.recorded.rows import loud


def test_each_line_has_its_owner(seen):
    row = {"way": "register_hook", "steps": 9}
    rows = [
        loud(8, at=0, owner="Linear", n=18, added=9, **row),
        loud(8, at=1, owner="SGD", n=7, added=7, **row),
    ]
    first, second = seen(sites=[4, 5], kept_hooks=rows).get(KeptHooks).lines
    assert (first.site.line, first.owner, first.n, first.added) == (4, "Linear", 18, 9)
    assert (second.site.line, second.way, second.added, second.steps) == (5, "register_hook", 7, 9)


@pytest.mark.parametrize(("added", "said"), [(9, True), (8, False)])
def test_usual_is_a_share_of_the_steps(added, said):
    line = KeptHook(Site("train.py", 3), "register_hook", "Linear", added, added, 10)
    assert len(list(KeptHooks((line,)).usual(0.9, 5))) == said
    assert not list(KeptHooks((line,)).usual(0.1, 10))
