"""Where modules are wrapped in DistributedDataParallel."""

import gc

import pytest
from torch.nn.parallel import DistributedDataParallel

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.probes.dist import data_parallel
from auditor.capture.probes.dist.data_parallel import DataParallelModules
from tests.capture.drive import Drive, line_of, load
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


def test_each_module_has_a_number_and_its_line(followed):
    user, modules, drive = followed

    made = [user.wrap(), user.wrap()]

    assert [modules.each[each][0] for each in made] == [0, 1]
    places = {modules.each[each][1] for each in made}
    lines = {row["id"]: row["line"] for row in drive.rows("sites")}
    assert [lines[at] for at in places] == [line_of(user, "made")]


def test_none_is_kept_alive_and_no_number_is_given_twice(followed):
    user, modules, _ = followed
    user.wrap()
    gc.collect()

    kept = user.wrap()

    assert list(modules.each) == [kept]
    assert modules.each[kept][0] == 1


def test_no_more_than_so_many_are_followed(followed, monkeypatch):
    monkeypatch.setattr(data_parallel, "MOST", 1)
    user, modules, _ = followed

    kept = [user.wrap(), user.wrap()]

    assert list(modules.each) == kept[:1]
