"""Float64 in the forward: shares of elements, and what an empty pass says."""

from __future__ import annotations

from auditor.rules.cfg.float64_ops import Float64Ops

from tests.evidence.recorded.rows import loud

BIRTH = {"what": "birth", "at": 0, "how": "cast", "op": "to", "n": 6, "elements": 30, "largest": 9}


def birth(**more):
    return loud(0, **{**BIRTH, "products": 2, "graph": False, "steps": 4, "all": 120, **more})


def parameters(elements, every):
    return loud(0, what="parameters", elements=elements, all=every)


def test_each_birth_with_its_share_of_all_elements(seen):
    rows = [birth(), birth(graph=True, steps=0, all=0, elements=3), parameters(1, 4)]
    table = seen(sites=[7], doubles=rows).get(Float64Ops)
    first, second = table.births
    assert (first.site.line, first.how, first.op) == (7, "cast", "to")
    assert (first.calls, first.elements, first.largest, first.products) == (6, 30, 9, 2)
    assert (first.share, first.graph, first.steps) == (0.25, False, 4)
    assert (second.share, second.graph, second.steps) == (3.0, True, 1)  # never divided by nothing
    assert table.trained == 0.25


def test_no_parameters_no_share_of_them(seen):
    assert seen(sites=[7], doubles=[parameters(0, 0)]).get(Float64Ops).trained == 0.0
    table = seen(doubles=[]).get(Float64Ops)
    assert (table.births, table.trained) == ((), 0.0)
