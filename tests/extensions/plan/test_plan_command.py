"""``audit plan`` as a user runs it: whole re-runs on the shadow, exit codes, what it leaves behind."""

import json
import textwrap

import pytest
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.extensions.plan.reruns import Reruns, Wanted

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


@pytest.mark.slow
def test_a_resized_loader_takes_what_the_edited_program_takes(project):
    from auditor.extensions.plan import batch_size

    reruns = Reruns("train.py", (), "rehearse", "T4")
    base = reruns.run(Wanted())
    reruns.setting = batch_size.found(base, (), reruns.files)
    resized = reruns.run(Wanted(batch=512))
    edited = textwrap.dedent(SCRIPT).replace("batch_size=256", "batch_size=512")
    (project / "edited.py").write_text(edited)
    known = Reruns("edited.py", (), "rehearse", "T4").run(Wanted())
    assert (resized.allocated, resized.reserved) == (known.allocated, known.reserved)
    assert resized.phases == known.phases and resized.purposes == known.purposes
    assert resized.allocated > base.allocated + (1 << 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "code", "said"),
    [
        ("print('no step')\n", 2, "train.py"),
        ("raise ValueError('no data')\n", 3, "ValueError: no data at train.py:1"),
        (textwrap.dedent(SCRIPT).replace(".cuda()", ""), 2, "put nothing on the CUDA device"),
    ],
)
def test_a_program_that_gives_no_answer(project, source, code, said):
    (project / "train.py").write_text(source)
    done = plan("train.py")
    assert done.exit_code == code, done.output
    assert said in " ".join(done.stderr.split()) and done.stdout == ""
    assert "Traceback" not in done.output


@pytest.mark.slow
def test_the_whole_table(project):
    done = plan("train.py", "--gpu", "T4", "--out", "plan.txt", "--budget", "40s")
    assert done.exit_code == 0, done.output
    table = (project / "plan.txt").read_text()
    assert table.strip() in done.stdout
    assert "activation checkpointing" in table and "changes:" in table
    assert sorted(path.name for path in project.iterdir()) == ["plan.txt", "train.py"]
