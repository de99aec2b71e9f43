"""Modules trained data parallel, and epochs that began alike."""

from types import SimpleNamespace

import pytest

from auditor.evidence.recorded.data_parallel import DataParallel, RankBatches, SamplerEpochs
from auditor.model import Site
from auditor.recordings.schema.dist import BatchDigestRow
from auditor.rule import NotLooked
from tests.evidence.recorded.rows import loud, quiet, steps


def module(number=0, **more):
    return loud(0, number=number, at=0, what="Net", ranks=2, bytes=80, **more)


def test_steps_of_the_optimizer_are_joined_to_their_module(seen):
    rows = [
        loud(step, number=number, at=at, n=n)
        for step, number, at, n in ((0, 0, 1, 3), (0, 1, 1, 1), (1, 0, 2, 2), (2, 0, 2, 1))
    ]
    table = seen(sites=[3, 5, 7], data_parallel=[module(1), module()], gradient_syncs=rows).get(
        DataParallel
    )
    first, second = table.each
    assert (first.averaged, first.at.line) == ((3, 2, 1), 7)
    assert (first.ranks, first.nbytes) == (2, 80)
    assert second.averaged == (1,)


def epochs(seen, rows, fed=range(8), loader_at=0):
    return (
        seen(
            sites=[3, 5],
            steps=[*steps(8, "quiet"), *steps(8)],
            sampler_epochs=[
                {"at": 0, "loader_at": 0, "replicas": 2, "number": 0, **row} for row in rows
            ],
            loaders=[{"loader": 0, "made_at": loader_at}, {"loader": 1, "made_at": 1}],
            batches=[
                *(quiet(step, loader=0, n=1) for step in fed),
                *(quiet(step, loader=1, n=1) for step in range(8)),
                *(loud(step, loader=0, n=1) for step in range(8)),
            ],
        )
        .get(SamplerEpochs)
        .each
    )


@pytest.mark.parametrize(
    "rows",
    [
        [quiet(0, epoch=0), quiet(4, epoch=1)],
        [quiet(0, epoch=0), loud(0, epoch=0)],
        [quiet(0, epoch=0), quiet(3, epoch=0), quiet(6, epoch=1)],
        [quiet(0, epoch=0, at=None), quiet(4, epoch=0, at=None)],
    ],
)
def test_epochs_that_differ_or_have_no_place_are_nothing(seen, rows):
    assert epochs(seen, rows) == ()


@pytest.mark.parametrize(
    ("table", "parts", "why"),
    [
        (DataParallel, ("data_parallel", "gradient_syncs"), "DistributedDataParallel"),
        (SamplerEpochs, ("sampler_epochs", "loaders", "batches", "steps"), "DistributedSampler"),
        (RankBatches, ("batch_digests", "steps"), "one process"),
    ],
)
def test_a_program_of_one_process_is_not_called_clean(seen, table, parts, why):
    with pytest.raises(NotLooked, match=why):
        seen(**{part: [] for part in parts}).get(table)


def digests(*rows, rank=0, line=3):
    """A rank's recording: its batches' digests by step, of a loader made on that line."""
    made = [
        BatchDigestRow(at=0, loader_at=0, rank=rank, ranks=2, digest=digest, step=step)
        for step, digest in rows
    ]
    site = Site("train.py", line)
    kept = SimpleNamespace(rows=lambda kind: made, site=lambda number: site, manifest={})
    return kept, made


@pytest.mark.parametrize(
    ("other", "line", "same"),
    [
        ([(0, "a"), (1, "b"), (2, "c")], 3, (3, 3)),
        ([(0, "a"), (1, "x"), (2, "c")], 3, (2, 2)),
        ([(1, "b")], 3, (1, 1)),
        ([(0, "a")], 4, None),  # another loader
    ],
)
def test_batches_that_two_ranks_share(other, line, same):
    own, rows = digests((0, "a"), (1, "b"), (2, "c"), (3, ""))
    beside, _ = digests(*other, rank=1, line=line)
    own.members = (own, beside)
    steps = SimpleNamespace(loud=[None] * 8)
    evidence = SimpleNamespace(
        recording=own, has=lambda part: True, rows=lambda kind: rows, get=lambda table: steps
    )
    table = RankBatches.build(evidence)
    assert table.world_size == 2
    found = [(each.steps, each.different, each.ranks, each.of, each.fed) for each in table.each]
    assert found == ([(*same, 2, 4, 0.5)] if same else [])
    alone = SimpleNamespace(**vars(own) | {"members": (own, own)})
    evidence.recording = alone
    assert RankBatches.build(evidence) == RankBatches(world_size=2)
