"""``audit verify`` and ``audit drill`` on torch's own CUDA code."""

import json

import pytest

from tests.cuda.audited import audited
from tests.test_examples import EXAMPLES

pytestmark = pytest.mark.usefixtures("inside")

RETAINS = """
torch.manual_seed(1)


def step():
    x = torch.randn(32, 256, device=device)
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward(retain_graph=True)
    optimizer.step()
"""


def test_a_patch_is_tried_in_copies_of_the_project(audit, tmp_path):
    seen = audited(audit, tmp_path / "own", RETAINS)
    assert seen.at("GRAPH002") == ["loss.backward(retain_graph=True)"]
    before = (tmp_path / "own" / "trainer.py").read_text()
    done = audit("verify", str(seen.folder), "--budget", "15", cwd=tmp_path / "own")
    assert done.returncode == 0, done.stderr
    report = json.loads((seen.folder / "report.json").read_text())
    assert report["verification"] is not None
    assert (tmp_path / "own" / "trainer.py").read_text() == before


@pytest.mark.parametrize(("name", "code"), [("broken", 1), ("repaired", 0)])
def test_a_planted_out_of_memory_error_shows_the_handlers_flaws(audit, tmp_path, name, code):
    folder = EXAMPLES / "qc_trainer" / name
    words = ("drill", "trainer:step", "--inject", "oom@3", "--device", "cuda")
    done = audit(*words, "--out", str(tmp_path / "out"), cwd=folder)
    assert done.returncode == code, done.stdout + done.stderr
    assert ("survived oom@3" if code == 0 else "FAILED oom@3") in done.stdout
