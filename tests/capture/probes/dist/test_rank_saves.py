"""The probe of what ranks save."""

from __future__ import annotations

from pathlib import Path

import torch
from auditor.rules.dist.probes import rank_saves
from auditor.rules.dist.probes.rank_saves import RankSavesProbe

from auditor.capture.probes.ckpt.torch_save import TorchSaveProbe
from tests.capture.drive import Drive, line_of, load
from tests.echo_group import as_rank

SOURCE = """
import io
from pathlib import Path
import torch

here = Path(__file__).parent

def step():
    torch.save({"a": torch.ones(3)}, here / "saved.pt")  # file
    torch.save(3, io.BytesIO())
"""


def test_saves_of_any_pass_beside_those_that_are_timed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(rank_saves, "MOST", 5)
    before = torch.save.__code__
    with as_rank(1), Drive(tmp_path, TorchSaveProbe, RankSavesProbe) as drive:
        user = load(tmp_path, SOURCE)
        drive.run("quiet", user.step, steps=1)
        drive.run("loud", user.step, steps=2)
        rows, timed = drive.rows("rank_saves"), drive.rows("saves")
    assert torch.save.__code__ is before
    assert ([row["pass"] for row in rows], len(timed)) == (["quiet"] * 2 + ["loud"] * 3, 2)
    first, second = rows[:2]
    assert (first["at_line"], first["path"]) == (line_of(user, "file"), str(tmp_path / "saved.pt"))
    assert first["bytes"] == (tmp_path / "saved.pt").stat().st_size
    assert first["us"] > 0
    assert first["digest"] == rows[2]["digest"] != ""
    assert (second.get("digest", ""), second.get("path")) == ("", None)


def test_one_process_is_not_looked_at(tmp_path: Path) -> None:
    with Drive(tmp_path, RankSavesProbe) as drive:
        user = load(tmp_path, SOURCE)
        drive.run("quiet", user.step, steps=1)
        assert drive.rows("rank_saves") == []
