"""``audit plan`` as a user runs it: whole re-runs on the shadow, exit codes, what it leaves behind."""

import json
import textwrap

import pytest
from click.testing import CliRunner

from auditor.cli.main import main

SCRIPT = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(32, 256), nn.Linear(256, 32)
        def forward(self, x):
            return x + self.down(self.up(x).relu())

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(4))
        def forward(self, x):
            for block in self.blocks:
                x = block(x)
            return x

    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(4096, 32))
    for (x,) in DataLoader(data, batch_size=256):
        loss = model(x.cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(textwrap.dedent(SCRIPT))
    return tmp_path


def plan(*words):
    return CliRunner().invoke(main, ["plan", *words, "--device", "rehearse"], prog_name="audit")


def test_the_program_as_it_is_and_nothing_more(project):
    done = plan("train.py", "--gpu", "T4", "--budget", "1s", "--format", "json", "--world", "4")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    rows = {row["name"]: row for row in told["rows"]}
    base = rows["as it is"]
    assert (base["basis"], base["batch"], base["fits"]) == ("rehearsed", 256, {"T4": "yes"})
    assert base["purposes"]["parameters"] < base["purposes"]["optimizer state"] < base["allocated"]
    line = 1 + SCRIPT[: SCRIPT.index("DataLoader(data")].count("\n")
    assert told["batch_of"] == f"batch_size of the DataLoader at train.py:{line}"
    assert "--budget" in rows["batch x2"]["why"]
    assert "4 Block" in rows["activation checkpointing"]["change"]
    assert rows["ZeRO-3, 4 ranks"]["basis"] == "estimated"
    assert told["runs"] == 1 and told["notes"] == []
    assert [path.name for path in project.iterdir()] == ["train.py"]
