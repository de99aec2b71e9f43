"""The probe of buffers that DistributedDataParallel sends."""

from __future__ import annotations

from pathlib import Path

from auditor.rules.dist.probes import buffer_broadcasts
from auditor.rules.dist.probes.buffer_broadcasts import BufferBroadcastsProbe
from torch.nn.parallel import DistributedDataParallel

from tests.capture.drive import Drive, line_of, load
from tests.echo_group import ranks

SOURCE = """
import torch
from torch.nn.parallel import DistributedDataParallel

class Some(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.register_buffer("mask", torch.ones(4))
        self.register_buffer("seen", torch.zeros(8))
    def forward(self, x):
        return self.layer(x) * self.mask

model = DistributedDataParallel(Some())  # made
x = torch.ones(2, 4)

def twice():
    with model.no_sync():
        model(x).sum().backward()
    model(x).sum().backward()

def counts():
    model(x).sum().backward()
    model.module.seen.data += 1
"""


def test_how_often_they_are_sent_and_whether_they_change(tmp_path: Path) -> None:
    ranks()
    before = [vars(DistributedDataParallel)[name] for name in ("__init__", "forward")]
    with Drive(tmp_path, BufferBroadcastsProbe) as drive:
        user = load(tmp_path, SOURCE)
        drive.run("loud", user.twice, steps=3)
        drive.run("loud", user.counts, steps=2)
        drive.run("loud", lambda: None, steps=2)
        first, second = drive.rows("buffer_broadcasts")
    assert (first["at_line"], first["what"], first["ranks"]) == (line_of(user, "made"), "Some", 2)
    assert (first["buffers"], first["bytes"], first.get("changed", 0)) == (2, 48, 0)
    assert first["n"] == 3  # a forward after one inside no_sync() sends none
    assert (second["n"], second["changed"]) == (2, 1)
    assert [vars(DistributedDataParallel)[name] for name in ("__init__", "forward")] == before


def test_buffers_too_large_to_compare_are_not_told(tmp_path: Path, monkeypatch) -> None:
    ranks()
    monkeypatch.setattr(buffer_broadcasts, "READ", 47)
    with Drive(tmp_path, BufferBroadcastsProbe) as drive:
        user = load(tmp_path, SOURCE)
        drive.run("loud", user.counts, steps=2)
        assert drive.rows("buffer_broadcasts") == []
