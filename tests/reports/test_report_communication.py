"""The section about what ranks hold and exchange: in words, in the page and the terminal, and from a
stranger. No time is in it.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from auditor.reports import communication as words
from auditor.reports import summary
from auditor.reports.as_json import load

from auditor.judging.catalogue import renderer
from auditor.model import Site
from auditor.model.communication import Communication, Exchange, RankShare
from tests.reports import golden_report as golden

SITE, LATER = Site("train.py", 7, "", "loss.backward()"), Site("train.py", 9, "", "work.wait()")
MIB = 2**20
REDUCE = Exchange(
    SITE, "all_reduce", "mesh_dp", 8, "bfloat16", 2.0, 4.0 * MIB, 4.0 * MIB, None, None, (0, 63)
)
WAITED = Exchange(SITE, "all_gather", "", 64, "float32", 1.0, 4.0, 256.0, LATER, 5, (0,))
BARE = Exchange(LATER, "barrier", "", 64, "", 1.0, 0.0, 0.0, LATER, 0, (0, 63))
RANKS = (
    RankShare(0, 10 * MIB, 2 * MIB, 2 * MIB, 4 * MIB, 4.0, 4.0 * MIB, 4.0 * MIB),
    RankShare(63, None, None, None, None, 3.0, 4.0 * MIB, 4.0 * MIB),
)
FOUND = Communication(64, True, 3, RANKS, (REDUCE, WAITED, BARE))


REHEARSED = (
    "Rehearsed as ranks 0 and 63 of 64: nobody ran the others, and each of them is taken to have "
    "sent what this one did. Bytes and order are those of a step, and nothing is known of times."
)


def report(**more):
    silent = golden.silent_report()
    run = replace(silent.run, world_size=64)
    return replace(silent, run=run, communication=replace(FOUND, **more))


def test_all_is_said():
    assert words.sentences(report()) == (
        REHEARSED,
        "Nothing is computed between issue and wait of 1 collective per step: train.py:9.",
    )
    assert summary.processes(report()) == ", ranks 0 and 63 of 64 rehearsed"


def test_real_ranks_are_not_called_rehearsed():
    (first, *_) = words.sentences(report(played=False))
    assert first == "Collectives of ranks 0 and 63, in 3 steps of the precision pass."
    assert summary.processes(report(played=False)) == " in 64 processes"


def test_without_a_collective_in_the_open_nothing_is_said_of_it():
    assert len(words.sentences(report(exchanges=(REDUCE, WAITED)))) == 1
    assert words.sentences(golden.silent_report()) == ()


def test_rows():
    assert words.shares(report(), 8) == [
        ("0", "2 MiB", "2 MiB", "4 MiB", "2 MiB", "10 MiB", "4", "4 MiB", "4 MiB"),
        ("63", "-", "-", "-", "-", "-", "3", "4 MiB", "4 MiB"),
    ]
    reduce, waited, bare = words.exchanges(report(), 8)
    assert reduce[1:5] == ("all_reduce", "8 (mesh_dp)", "bfloat16", "2")
    assert reduce[-1] == "by torch"
    assert (waited[2], waited[-1]) == ("64, on rank 0", "after 5 operators at train.py:9")
    assert bare[-1] == "at once"


@pytest.mark.parametrize(("limit", "said"), [(3, ""), (2, "and 1 row with fewer bytes")])
def test_what_a_table_leaves_out_is_said(limit, said):
    assert len(words.exchanges(report(), limit)) == limit
    assert words.left_out(report(), limit).startswith(said) and bool(said) == bool(
        words.left_out(report(), limit)
    )


def test_the_page_and_the_terminal_have_both_tables():
    page, terminal = (renderer(name).render(report()) for name in ("html", "terminal"))
    for text in (page, terminal):
        assert "Rehearsed as ranks 0 and 63 of 64" in text
        assert "mesh_dp" in text and "train.py:7" in text
    assert 'id="communication"' in page
    assert 'id="communication"' not in renderer("html").render(golden.silent_report())
    assert not re.search(r"\d (us|ms|s)\b", terminal.partition("Rehearsed")[2])


def test_a_stranger_reads_it_again():
    again = load(renderer("json").render(report()))
    assert again.communication == FOUND
