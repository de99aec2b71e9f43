"""Where modules are wrapped in DistributedDataParallel."""

import pytest
from torch.nn.parallel import DistributedDataParallel

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.probes.dist import data_parallel
from auditor.capture.probes.dist.data_parallel import DataParallelModules
from tests.capture.drive import Drive, load
from tests.echo_group import ranks

SOURCE = """
import torch
from torch.nn.parallel import DistributedDataParallel

def wrap():
    return DistributedDataParallel(torch.nn.Linear(2, 2))  # made
"""


def _together(number: int, at: int | None) -> tuple[int, int | None]:
    return number, at


@pytest.fixture
def followed(tmp_path):
    user, lost = load(tmp_path, SOURCE), []
    bare = DistributedDataParallel.__init__
    ranks(2)
    with Drive(tmp_path) as drive:
        frames = drive.context.frames
        modules, patches = DataParallelModules(frames, _together), Patches(lost.append)
        modules.install(patches)
        yield user, modules, drive
        patches.undo()
    assert DistributedDataParallel.__init__ is bare
    assert not lost


def test_no_more_than_so_many_are_followed(followed, monkeypatch):
    monkeypatch.setattr(data_parallel, "MOST", 1)
    user, modules, _ = followed

    kept = [user.wrap(), user.wrap()]

    assert list(modules.each) == kept[:1]
