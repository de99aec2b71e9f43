"""``audit reproduce`` as a user runs it: whole processes, scripts, exit codes, the hash seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.extensions.reproduce import programs

SCRIPT = """
import os, sys, time
import torch

torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(), torch.nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters())
if os.path.exists("kept.pt"):
    raise SystemExit("it was here before")
for step in range(6):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
    torch.save(model.state_dict(), "kept.pt")
    print("seconds", time.time())
"""


def reproduce(where, *words):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    command = [sys.executable, "-m", "auditor", "reproduce", *words]
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True)


def test_a_script_that_is_alike_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = reproduce(tmp_path, "train.py", "--steps", "4", "--", "7")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("alike: ")
    assert [each.name for each in tmp_path.iterdir()] == ["train.py"]


def test_the_hash_seed_is_found_at_the_line_of_the_set(tmp_path):
    text = Path(programs.__file__).read_text()
    (tmp_path / "trainer.py").write_text(f"{text}\n\nstep = order_of_a_set()\n")
    done = reproduce(tmp_path, "trainer:step", "--format", "json")
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)
    assert (said["alike"], said["causes"]) == (False, ["hash"])
    assert said["first"]["text"].endswith("# hash")
    assert said["first"]["step"] == 0


def test_a_target_that_fails_is_3_and_one_that_trains_nothing_2(tmp_path):
    (tmp_path / "bad.py").write_text(
        "import torch\ndef step(): raise ValueError('mine')\ndef forward(): torch.ones(2).sum()\n"
    )
    failed = reproduce(tmp_path, "bad:step")
    assert failed.returncode == 3
    assert "ValueError: mine" in failed.stderr
    nothing = reproduce(tmp_path, "bad:forward")
    assert nothing.returncode == 2
    assert "no backward" in nothing.stderr


def test_a_commit_is_run_in_the_place_of_the_project(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.replace("square()", "abs()"))
    names = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), (*names, "commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    script.write_text(f"# a comment moves the lines\n{SCRIPT}")
    done = reproduce(tmp_path, "train.py", "--against", "HEAD", "--format", "json", "--", "7")
    assert done.returncode == 1, done.stderr
    said = json.loads(done.stdout)
    assert ".square()" in said["first"]["text"]
    assert any(".abs()" in line and "train.py:12" in line for line in said["lines"])
    assert ".square()" in script.read_text()
