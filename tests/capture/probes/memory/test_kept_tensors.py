"""The probe of variables that hold more and more tensors."""

import random
from typing import Any

import pytest
import torch

from auditor.capture.probes.memory.kept_tensors import FEWEST_KEYS, KeptTensorsProbe, never_again
from tests.capture.drive import Drive, watched

SOURCE = """import collections
import torch

class Monitor:
    def __init__(self):
        self.history = collections.defaultdict(list)

    def update(self, out):
        self.history["out"].append(out.detach())  # kept

model = torch.nn.Linear(8, 4)
monitor, graphs, full, numbers = Monitor(), [], collections.deque(maxlen=1), []
full.append(torch.ones(2))

def step():
    out = model(torch.ones(16, 8))
    monitor.update(out)
    graphs.append(out)
    full.append(torch.ones(2))
    numbers.append(1.0)
"""


def kept(drive: Drive, user: Any) -> list[dict[str, Any]]:
    """Rows of the program's own variables: the process has run others before."""
    return [row for row in drive.rows("kept") if row["file"] == user.__file__]


def test_one_step_shows_no_growth(tmp_path):
    user, drive = watched(tmp_path, SOURCE, KeptTensorsProbe, steps=1)
    assert kept(drive, user) == []


def test_views_of_one_memory_keep_it_once(tmp_path):
    user, drive = watched(
        tmp_path,
        "import torch\ndata = torch.ones(8, 4)\nseen, parts = [], []\nat = 0\n"
        "def step():\n    global at\n    seen.append(data[at : at + 2])\n"
        "    parts.append(torch.ones(8, 4)[:1])\n    at += 2\n",
        KeptTensorsProbe,
        steps=3,
    )
    rows = {row["name"]: row for row in kept(drive, user)}
    assert (rows["seen"]["tensors"], rows["seen"]["nbytes"]) == ([1, 2, 3], [128] * 3)
    assert rows["parts"]["nbytes"] == [128, 256, 384]


def test_the_keys_of_a_dictionary_are_told(tmp_path):
    user, drive = watched(
        tmp_path,
        "import torch\ncache = {}\ndef step():\n    x = torch.ones(2)\n    cache[x] = x * 2\n",
        KeptTensorsProbe,
        steps=FEWEST_KEYS,
    )
    (row,) = kept(drive, user)
    assert row["keys"] == "tensors"


def epochs(times: int, samples: int = 40, batch: int = 5) -> list[tuple[int, ...]]:
    order = random.Random(1)
    taken = [order.sample(range(samples), samples) for _ in range(times)]
    return [
        tuple(each[start : start + batch]) for each in taken for start in range(0, samples, batch)
    ]


@pytest.mark.parametrize(
    "keys",
    [
        epochs(2)[: FEWEST_KEYS - 1],
        epochs(2, samples=48)[:-1],  # the second epoch is not over
        [(i,) for i in range(20)],
        [(height, width) for height in range(5) for width in range(10, 15)],
        [(i, i, i + 1, 0) for i in range(40)],  # tokens of a sentence come twice
        [(epoch, 100 + batch) for epoch in range(5) for batch in range(5)],
        [("train", i) for i in range(40)],
        [str(each) for each in range(40)],
        [torch.ones(1), *range(40)],
    ],
)
def test_other_keys_may_come_again(keys):
    assert never_again(keys) == ""


def test_tensors_never_come_again():
    assert never_again([torch.ones(1) for _ in range(FEWEST_KEYS)]) == "tensors"
    assert never_again([torch.ones(1) for _ in range(FEWEST_KEYS - 1)]) == ""
