"""Folders and shards: what is read, and whether all of it lies where the index says."""

import json
import math

import pytest
import torch
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.evidence.checkpoints import Checkpoint
from auditor.extensions.checkpoints.files import checkpoints_in, passed_over, scans_of
from fuzz.hostile_checkpoints import archive, call
from fuzz.real_checkpoints import safetensors

ONES, NAN = torch.ones(2), torch.tensor([1.0, math.nan])
FIRST, SECOND = "m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"


@pytest.fixture
def sharded(tmp_path):
    """Writes shards and an index, and reads it."""

    def read(shards, index):
        for name, content in shards.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            raw = content if isinstance(content, bytes) else safetensors(**content)
            (tmp_path / name).write_bytes(raw)
        path = tmp_path / "m.safetensors.index.json"
        path.write_text(json.dumps({"weight_map": index}))
        return Checkpoint(*scans_of([path]))

    return read


TWO = {FIRST: {"a": ONES}, SECOND: {"b": ONES}}
MAP = {"a": FIRST, "b": SECOND}


def test_a_whole_index_is_good_and_its_shards_are_not_read_twice(sharded, tmp_path):
    found = sharded(TWO, MAP)
    assert found.good and [each.name for each in found.scan.tensors] == ["a", "b"]
    assert [each.name for each in checkpoints_in(tmp_path)] == ["m.safetensors.index.json"]


@pytest.mark.parametrize(
    ("shards", "index", "said"),
    [
        ({FIRST: {"a": ONES}}, MAP, f"shard {SECOND}: it does not exist"),
        (
            {**TWO, "m-00003-of-00003.safetensors": {"c": ONES}},
            MAP,
            "shard m-00003-of-00003.safetensors lies beside its index, which does not name it",
        ),
        (
            {FIRST: {"a": ONES}, SECOND: {"b": ONES, "a": ONES}},
            MAP,
            f"a is in shard {FIRST} and in",
        ),
        (
            {FIRST: {"a": ONES}, SECOND: {"c": ONES}},
            MAP,
            f"1 tensors of its index are not in shard {SECOND}",
        ),
        ({FIRST: {"a": ONES}, SECOND: b"PK"}, MAP, f"shard {SECOND}: it is neither"),
        ({FIRST: {"a": ONES}, SECOND: safetensors(b=ONES)[:-4]}, MAP, f"shard {SECOND}: it cannot"),
        *(
            (
                {"a.st": {"a": ONES}, "sub/b.st": {"b": ONES}},
                {"a": "a.st", "b": name},
                "does not lie",
            )
            for name in ("sub/b.st", "../b.st", "/b.st", "", ".", "sub\\b", "c\0")
        ),
    ],
)
def test_a_folder_that_is_not_what_its_index_says(sharded, shards, index, said):
    found = sharded(shards, index)
    assert found.verdict == "damaged" and any(said in each for each in found.scan.damage)


def test_what_is_said_of_a_shard_is_said_of_the_whole(sharded):
    assert sharded({FIRST: {"a": NAN}, SECOND: {"b": ONES}}, MAP).verdict == "damaged"
    refused = sharded({"a.bin": archive(call("os.system"))}, {"a": "a.bin"})
    assert refused.verdict == "refused" and "os.system" in refused.scan.refused


def test_shards_without_an_index_are_all_there(tmp_path):
    def shard(number, of=2, name="model", suffix="safetensors"):
        path = tmp_path / f"{name}-{number:05}-of-{of:05}.{suffix}"
        path.write_bytes(safetensors(a=ONES))
        return path

    first = shard(1)
    shard(2, of=3), shard(2, name="other"), shard(2, suffix="bin")
    (found,) = scans_of([first])
    assert found.damage == (
        "it is one of 2 shards, of which model-00002-of-00002.safetensors is not beside it",
    )
    paths = [first, shard(2), shard(0, of=1, name="rank")]
    assert all(Checkpoint(each).good for each in scans_of(paths))


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path):
    for name in ("a.pt", "B.PT", "c.pkl", "d.pt2", "config.json", ".hidden"):
        (tmp_path / name).write_bytes(archive(b"\x80\x02}."))
    (tmp_path / "step-5").mkdir()
    assert [each.name for each in checkpoints_in(tmp_path)] == ["B.PT", "a.pt"]
    assert passed_over(tmp_path) == ("c.pkl", "d.pt2", "step-5/")
    result = CliRunner().invoke(main, ["checkpoint", str(tmp_path)])
    assert result.exit_code == 0 and "c.pkl, d.pt2, step-5/" in result.stderr
