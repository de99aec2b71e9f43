"""Lines that hold more at the end of each step, on histories of the simulated allocator."""

import pickle

import pytest
from auditor.rules.mem.mem003_memory_grows import GrowingLines

from auditor.allocator import CachingAllocator
from auditor.evidence.table import Evidence
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.recordings.writer import store_sources

KIB = 1 << 10
SOURCE = "import torch\nbank = torch.zeros(0)\nfor x in data:\n    bank = torch.cat([bank, x])\n"
STEP_US = 1000


@pytest.fixture
def growing(tmp_path):
    """The table of a training of ``steps``: a block at line 4 that grows by ``per_step`` bytes and
    replaces the one before, a block at line 9 that is made anew at one size, and one at line 7
    that is freed inside the step.
    """

    def made(steps=12, per_step=256 * KIB, *, timed=True):
        user, allocator = tmp_path / "w" / "train.py", CachingAllocator(1 << 40)
        user.parent.mkdir()
        user.write_text(SOURCE)

        def block(size, line, now):
            frames = ({"filename": str(user), "line": line, "name": "<module>"},)
            return allocator.malloc(size, frames=frames, now_us=now)

        writer, old = RecordingWriter(tmp_path / "rec"), {}
        for step in range(steps):
            now = 10**15 + step * STEP_US
            writer.add_fields(
                "steps",
                {"pass": "loud", "step": step, "us": 900.0, "unix_us": float(now) * timed},
            )
            gone = block(64 * KIB, 7, now + 10)
            sizes = {4: per_step * (step + 1), 9: 512 * KIB}
            for number, (line, size) in enumerate(sizes.items()):
                new = block(size, line, now + 20 + number)
                if line in old:
                    allocator.free(old[line], now_us=now + 30 + number)
                old[line] = new
            allocator.free(gone, now_us=now + 40)
        writer.close()
        (tmp_path / "rec" / "snapshot.pickle").write_bytes(pickle.dumps(allocator.snapshot()))
        sources = store_sources(tmp_path / "rec", str(user.parent), iter([str(user)]))
        write_manifest(
            tmp_path / "rec",
            {
                "schema": SCHEMA,
                "target": "train.py",
                "outcome": "completed",
                "device": "cuda",
                "cwd": str(user.parent),
                "sources": sources,
            },
        )
        return Evidence(Recording(tmp_path / "rec")).get(GrowingLines)

    return made


def test_blocks_of_one_size_do_not_grow(growing):
    assert growing(per_step=0).lines == ()


def test_without_the_steps_times_nothing_is_told(growing):
    assert growing(timed=False).lines == ()
