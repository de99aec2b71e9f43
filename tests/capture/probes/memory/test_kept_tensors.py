"""The probe of variables that hold more and more tensors."""

from typing import Any

from auditor.capture.probes.memory.kept_tensors import KeptTensorsProbe
from tests.capture.drive import Drive, watched


def kept(drive: Drive, user: Any) -> list[dict[str, Any]]:
    """Rows of the program's own variables: the process has run others before."""
    return [row for row in drive.rows("kept") if row["file"] == user.__file__]


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
