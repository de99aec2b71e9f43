"""Ranks of a world that is not there: which ones, and what each is told."""

import pytest

from auditor.errors import AuditProblem
from auditor.runs import played_ranks
from auditor.runs.plan import Audit, Passes, Plan
from tests.runs.test_rank_recordings import ranked


@pytest.mark.parametrize(
    ("world", "asked", "ranks"),
    [(64, "", (0, 63)), (2, "", (0, 1)), (8, "5,0,5", (0, 5)), (4, "3", (3,))],
)
def test_which_ranks_are_rehearsed(world, asked, ranks):
    assert played_ranks.chosen(world, asked) == ranks


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("a", "write numbers"),
        ("0,64", "0 to 63"),
        ("-1", "0 to 63"),
        (",".join(map(str, range(17))), "at most 16"),
    ],
)
def test_ranks_that_cannot_be(asked, said):
    with pytest.raises(AuditProblem, match=said):
        played_ranks.chosen(64, asked)


def test_sixteen_ranks_can_be():
    assert len(played_ranks.chosen(64, ",".join(map(str, range(16))))) == 16


def plan(**more):
    return Plan("t.py", (), 50, 5, "auto", "/out", ("steps",), **more)


def test_a_rank_is_told_who_it_is_on_machines_of_eight():
    own = played_ranks.of_rank(plan(world_size=64, played=(0, 63)), 63, {"LD_PRELOAD": "x"})
    assert (own.folder, own.rank) == ("/out/rank63", 63)
    told = own.variables
    names = ("RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "LD_PRELOAD")
    assert [told[name] for name in names] == ["63", "7", "7", "64", "8", "x"]
    few = played_ranks.of_rank(plan(world_size=2, played=(0, 1)), 1, {}).variables
    assert (few["LOCAL_RANK"], few["LOCAL_WORLD_SIZE"], few["GROUP_RANK"]) == ("1", "2", "0")


def test_the_steps_are_those_of_a_rehearsal():
    asked = plan(world_size=4, played=(0, 3), purpose=Passes(trace=5))
    audit = played_ranks.planned(Audit(asked, ("reads",), ("owners",)))
    played = audit.run
    assert (played.device, played.steps, played.warmup) == ("null", 12, 0)
    assert (played.purpose, audit.rehearsed, audit.native) == (Passes(trace=0), (), ())
    assert Plan.from_json(played.to_json()) == played


def test_a_rank_that_was_to_be_played_is_missed(tmp_path):
    facts = {"outcome": "completed", "world_size": 64, "played": [0, 1, 63]}
    opened = ranked(tmp_path, rank0=facts, rank63=facts)
    assert opened.manifest["warnings"] == ["rank 1 recorded nothing"]
