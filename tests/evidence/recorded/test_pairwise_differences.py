"""Differences of all pairs, by line."""

from __future__ import annotations

from auditor.rules.mem.pairwise_differences import PairwiseDifferences


def row(step, at=0, kind="squares", nbytes=100, *, graph=False):
    return {"pass": "numbers", "step": step, "at": at, "kind": kind, "bytes": nbytes, "size": 8} | {
        "graph": graph
    }


def test_lines_and_kinds_stand_apart_the_largest_first(seen):
    rows = [row(0), row(0, nbytes=300, graph=True), row(1), row(2, at=1), row(0, kind="absolute")]
    rows.append(row(2, at=1, nbytes=900))
    table = seen(sites=[3, 5], differences=rows).get(PairwiseDifferences)
    told = [(e.site.line, e.kind, e.nbytes, e.graph, e.per_step, e.steps) for e in table.lines]
    assert told == [
        (5, "squares", 900, False, 2.0, 1),
        (3, "squares", 300, True, 1.5, 2),
        (3, "absolute", 100, False, 1.0, 1),
    ]
    assert {each.size for each in table.lines} == {8}
