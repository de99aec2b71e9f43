"""What becomes of values on the GPU's path is seen in a rehearsal, and its replay names the line."""

import json
import textwrap

import pytest
import torch

from tests.lazily import Lazily

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="a machine with a GPU runs the path itself"
)

BODY = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    {device}
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    {more}


    def distance(out, number):
        goal = out.detach() if number == 20 else torch.zeros_like(out)
        {distance}


    for number in range(60):
        x = torch.randn(8, 16).to(device)
        {step}
"""
NEEDS = 'device = torch.device("cuda")'
PORTABLE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'
ROOT = "return ((out - goal) ** 2).sum(-1).sqrt().mean()"
PLAIN = """optimizer.zero_grad()
        distance(model(x), number).backward()
        optimizer.step()"""
SCALED = """optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = distance(model(x), 0)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()"""

ROWS = "import numpy; rows = numpy.full((8, 16), numpy.nan, dtype=numpy.float32)"
HOLES = """if number == 7:
            x = torch.from_numpy(rows).to(device)
        optimizer.zero_grad()
        distance(model(x), 0).backward()
        optimizer.step()"""

TARGETS = {
    "holes": BODY.format(device=PORTABLE, more=ROWS, distance=ROOT, step=HOLES),
    "late": BODY.format(device=NEEDS, more="", distance=ROOT, step=PLAIN),
    "right": BODY.format(
        device=NEEDS,
        more='scaler = torch.amp.GradScaler("cuda", init_scale=2.0**30)',
        distance="return ((out - goal) ** 2).sum(-1).add(1e-6).sqrt().mean()",
        step=SCALED,
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, audit):
    folder = tmp_path_factory.mktemp("values")

    def one(name):
        (folder / f"{name}.py").write_text(textwrap.dedent(TARGETS[name]))
        out = folder / f"out-{name}"
        asked = ("--steps", "24", "--select", "NUM002,NUM013,NUM014,NUM015", "--out", str(out))
        done = audit("run", f"{name}.py", *asked, cwd=folder, timeout=400)
        assert done.returncode == 0, done.stderr
        return json.loads((out / "report.json").read_text()), out / "recording"

    return Lazily(one)


def passes(recording):
    return {
        each["name"]: each["steps"]
        for each in json.loads((recording / "manifest.json").read_text())["passes"]
    }


def test_a_nan_after_the_diagnosed_steps_has_its_line(runs):
    report, recording = runs["late"]
    (finding,) = report["findings"]
    assert (finding["code"], finding["seen_on"]) == ("NUM002", "rehearsal")
    assert finding["site"]["text"] == ROOT
    # the script's first turn ends before the first step of the audit
    assert "the backward of sqrt produced inf at step 19" in finding["message"]
    assert passes(recording)["values"] == 12
    assert passes(recording / "replay") == {"replay": 20}


def test_what_the_cpu_has_told_is_not_told_again(runs):
    report, recording = runs["holes"]
    (finding,) = report["findings"]
    assert (finding["code"], finding["seen_on"]) == ("NUM015", "cpu")
    assert (recording / "rehearsal" / "manifest.json").is_file()
    assert not (recording / "rehearsal" / "replay").exists()


def test_a_right_program_is_clean_though_its_scaler_skips_the_first_steps(runs):
    report, recording = runs["right"]
    assert report["findings"] == []
    assert {each["status"] for each in report["verdicts"]} == {"clean"}
    assert not (recording / "replay").exists()
