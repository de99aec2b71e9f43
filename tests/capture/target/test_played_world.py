"""A process that plays one rank of a world: what ranks tell one another on the host is answered."""

import contextlib

import pytest
import torch
import torch.distributed as dist

from auditor.capture.target.played_world import UNSAID, PlayedStore, PlayedWorld


@pytest.fixture
def rank_3_of_8(monkeypatch):
    """The process is this rank, without ``init_process_group``."""
    for name, value in (("RANK", "3"), ("WORLD_SIZE", "8")):
        monkeypatch.setenv(name, value)
    if dist.is_initialized():
        dist.destroy_process_group()
    world = PlayedWorld()
    world.install()
    yield
    world.uninstall()
    with contextlib.suppress(Exception):
        dist.destroy_process_group()


def test_a_store_keeps_what_this_rank_sets_and_waits_for_nobody():
    store = PlayedStore()
    store.set("a", "word")
    assert (store.get("a"), store.get("b")) == (b"word", UNSAID)
    assert (store.add("n", 2), store.add("n", 3)) == (2, 5)
    assert (store.check(["a"]), store.check(["a", "b"])) == (True, False)
    assert store.wait(["never"]) is None
    wanted = (b"new", b"new")
    assert (store.compare_set("a", "word", "new"), store.compare_set("a", "word", "x")) == wanted
    assert store.compare_set("c", "expected", "x") == b"expected"
    assert (store.delete_key("a"), store.delete_key("a"), store.num_keys()) == (True, False, 1)


def test_gloo_is_played_and_objects_are_echoed(rank_3_of_8):
    dist.init_process_group("gloo")
    assert (dist.get_rank(), dist.get_world_size()) == (3, 8)
    own = torch.arange(2)
    others = [torch.zeros_like(own) for _ in range(8)]
    dist.all_gather(others, own)
    assert all(torch.equal(each, own) for each in others)
    dist.barrier()
    dist.monitored_barrier()
    objects, mine = [None] * 8, {"rank": 3}
    dist.all_gather_object(objects, mine)
    assert objects == [mine] * 8
    gathered: list[object] = [None] * 8
    dist.gather_object(mine, gathered)
    dist.gather_object(mine)
    assert gathered == [mine] * 8
    dist.broadcast_object_list(objects)
    assert objects == [mine] * 8
    out = ["own"]
    dist.scatter_object_list(out, None)
    assert out == ["own"]
    dist.scatter_object_list(out, list(range(8)))
    assert out == [3]


def test_a_subgroup_and_a_given_rank(rank_3_of_8):
    dist.init_process_group("gloo", init_method="tcp://nowhere:1", rank=1, world_size=4)
    assert (dist.get_rank(), dist.get_world_size()) == (1, 4)
    assert dist.get_world_size(dist.new_group([0, 1])) == 2


def test_all_is_put_back():
    places = [(dist.distributed_c10d, "rendezvous"), (dist, "new_group")]
    places += [(dist, "all_gather_object"), (dist, "monitored_barrier")]
    before = [vars(owner)[name] for owner, name in places]
    world = PlayedWorld()
    world.install()
    assert [vars(owner)[name] for owner, name in places] != before
    world.uninstall()
    assert [vars(owner)[name] for owner, name in places] == before
