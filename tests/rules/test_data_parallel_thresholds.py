"""The rules about data parallel training at both sides of their thresholds."""

from dataclasses import replace

import pytest
from auditor.rules.dist.communication import (
    BarrierEveryStep,
    CollectiveCall,
    CollectiveOrder,
    Parting,
    RanksPart,
)
from auditor.rules.dist.rank_batches import (
    AveragedTooOften,
    SameBatchesOnAllRanks,
    SameOrderEachEpoch,
    SteppedUnaveraged,
)
from auditor.rules.dist.rows import CollectiveRow

from auditor.evidence.recorded.data_parallel import (
    Apart,
    DataParallel,
    DataParallelModule,
    RankBatches,
    SameBatches,
    SameOrder,
    SamplerEpochs,
)
from auditor.evidence.source.files import Source
from auditor.model import Site
from tests.rules.asking import ask, lines, rows

SITE = Site("train.py", 7, "step", "loss.backward()")
LATER = Site("train.py", 9, "step", "loss.backward()")
MODULE = DataParallelModule("Net", 2, 1 << 20, at=SITE)
ORDER = SameOrder(SITE, 2, 0, 2, 1.0)


def findings(rule, each):
    if isinstance(each, SameOrder):
        return list(rule.detect(SamplerEpochs((each,)), Source()))
    return list(rule.detect(DataParallel((each,))))


@pytest.mark.parametrize(
    ("averaged", "ranks", "expected"),
    [
        ((4, 4, 4), 2, [(3.0, 3)]),
        ((4, 4), 2, []),
        ((4, 4, 4), 1, []),
        ((2, 2, 2, 1, 1, 1), 2, [(1.0, 3)]),
        ((2, 2, 2, 1, 1, 1, 1), 2, []),
        ((1, 1, 1, 1), 2, []),
    ],
)
def test_averages_of_micro_batches(averaged, ranks, expected):
    found = findings(AveragedTooOften(), replace(MODULE, averaged=averaged, ranks=ranks))
    assert [(each.per_step, each.steps) for each in found] == expected


def test_what_was_sent_is_said():
    (found,) = findings(AveragedTooOften(), replace(MODULE, averaged=(4, 4, 4)))
    assert "averaged over 2 ranks after each of 4 backward passes" in found.message
    assert "each rank needlessly sends 3 MiB per step" in found.message


@pytest.mark.parametrize(
    ("more", "expected"),
    [({}, 1), ({"epochs": 1}, 0), ({"replicas": 1}, 0), ({"share": 0.5}, 1), ({"share": 0.49}, 0)],
)
def test_epochs_in_one_order(more, expected):
    assert len(findings(SameOrderEachEpoch(), replace(ORDER, **more))) == expected


LOCAL = Apart(LATER, SITE, 1)


@pytest.mark.parametrize(
    ("more", "sent", "expected"),
    [
        ({}, 0, 1),
        ({"apart": ()}, 0, 0),
        ({"ranks": 1}, 0, 0),
        ({}, (1 << 18) - 1, 1),
        ({}, 1 << 18, 0),
        ({"averaged": (), "apart": (LOCAL,) * 4}, 0, 0),
        ({"averaged": (), "apart": (LOCAL,) * 5}, 0, 1),
    ],
)
def test_steps_on_gradients_of_one_rank(more, sent, expected):
    module = replace(MODULE, **{"averaged": (1, 1), "apart": (LOCAL,), "stepped": 3, **more})
    sizes = ((0, 9), (2, sent // 2), (2, sent - sent // 2), (3, max(0, sent - 1)))
    calls = (CollectiveRow(step=n, at=0, what="all_reduce", bytes=size) for n, size in sizes)
    found = list(ask(SteppedUnaveraged(), DataParallel((module,)), rows(*calls)))
    assert [(each.site, len(each.places)) for each in found] == [(SITE, 2)] * expected


@pytest.mark.parametrize(
    ("more", "module", "expected"),
    [
        ({}, {}, 1),
        ({"steps": 4, "of": 4}, {}, 0),
        ({"steps": 9, "of": 10}, {}, 1),
        ({"steps": 8, "of": 9}, {}, 0),
        ({"different": 2}, {}, 0),
        ({"fed": 0.5}, {}, 1),
        ({"fed": 0.49}, {}, 0),
        ({}, {"ranks": 1}, 0),  # ranks that share a model may share batches
        ({}, {"averaged": ()}, 0),
    ],
)
def test_equal_batches(more, module, expected):
    batches = RankBatches((replace(SameBatches(SITE, 2, 5, 5, 3, 1.0), **more),), 2)
    modules = DataParallel((replace(MODULE, **{"averaged": (1,) * 5, **module}),))
    assert len(list(SameBatchesOnAllRanks().detect(batches, modules))) == expected


@pytest.mark.parametrize(
    ("more", "expected"), [({}, 1), ({"ranks": 1}, 0), ({"what": "all_reduce"}, 0)]
)
def test_barriers(more, expected):
    facts = {"what": "barrier", "ranks": 2, **more}
    table = lines(*(CollectiveRow(at=0, step=step, **facts) for step in range(20)), sites=(SITE,))
    assert len(list(ask(BarrierEveryStep(), table))) == expected


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (None, "rank 1 goes on to its next step without it"),
        (CollectiveCall(1, SITE, "barrier", 0, 3), "rank 1 calls barrier at train.py:7"),
        (CollectiveCall(1, SITE, "all_reduce", 5, 3), "rank 1 passes 5 numbers and rank 0 4"),
        (CollectiveCall(1, LATER, "all_reduce", 4, 3), "rank 1 calls all_reduce at train.py:9"),
    ],
)
def test_ranks_that_part(other, said):
    parting = Parting(2, CollectiveCall(0, SITE, "all_reduce", 4, 3), other, 1)
    (found,) = RanksPart().detect(CollectiveOrder(parting))
    assert said in found.message


def test_a_rank_that_left_the_loop():
    one = CollectiveCall(1, Site("t.py", 9, "train"), "all_reduce", 1, 7)
    other = CollectiveCall(0, Site("t.py", 3, "train"), "backward", 1, 7)
    rule = RanksPart()
    (found,) = rule.detect(CollectiveOrder(Parting(0, one, other, 0)))
    said = "rank 1 calls all_reduce here after 7 steps, while rank 0 waits for gradients at t.py:3"
    assert (found.site.line, found.message, found.steps) == (9, said, 1)
    assert [place.site.line for place in found.places] == [3, 9]
    assert "same step" in rule.remedy(found).text
