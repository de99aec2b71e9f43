"""The recordings are small, have a source and a truth, and hold no object that a pickle would
make.
"""

import gzip
import hashlib
import pickletools

import pytest

from tests.recorded_traces import OURS, SNAPSHOTS, collected

RECORDED = collected(OURS)
LIMIT = 3_000_000
"""Bytes of all files together."""


def test_all_of_it_is_small():
    files = [path for path in OURS.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in files) < LIMIT


@pytest.mark.parametrize("key", RECORDED)
def test_the_truth_was_made_of_these_bytes(key):
    recorded = RECORDED[key]
    assert hashlib.sha256(recorded.path.read_bytes()).hexdigest() == recorded.truth["sha256"]


@pytest.mark.parametrize("key", sorted(set(RECORDED) & set(SNAPSHOTS)))
def test_a_snapshot_names_no_global(key):
    """Whoever opens these files by other means than our reader runs no code, either."""
    raw = gzip.decompress(RECORDED[key].path.read_bytes())
    globals_ = set(
        """
        GLOBAL STACK_GLOBAL INST OBJ NEWOBJ NEWOBJ_EX REDUCE BUILD EXT1 EXT2 EXT4
    """.split()
    )
    assert not globals_ & {opcode.name for opcode, _, _ in pickletools.genops(raw)}
