"""``audit drill`` as a user runs it: whole processes, scripts, restarts, exit codes, and what it
leaves behind.
"""

from __future__ import annotations

import json
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

TRAINER = """
    import os, sys
    import torch
    from torch import nn

    torch.manual_seed(1)
    x = torch.randn(64, 8)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    n = 0

    def train():
        global n
        batch = x[n % 4 :: 4]
        optimizer.zero_grad()
        (model(batch).squeeze(1) - batch.sum(1)).pow(2).mean().backward()
        optimizer.step()
        n += 1

    def save(path, **more):
        torch.save({"model": model.state_dict(), "n": n, **more}, path)

    def saves():
        train()
        save("ckpt.pt", optimizer=optimizer.state_dict())

    def resume(path, whole=True):
        global n
        if os.path.exists(path):
            kept = torch.load(path)
            model.load_state_dict(kept["model"])
            n = kept["n"]
            if whole:
                optimizer.load_state_dict(kept["optimizer"])

    def resumes():
        resume("run.pt")
        while True:
            train()
            if n % 3 == 0:
                save("run.pt", optimizer=optimizer.state_dict())
            yield

    def forgets_the_moments():
        resume("run.pt", whole=False)
        while True:
            train()
            save("run.pt")
            yield

    def begins_again():
        while True:
            train()
            save("run.pt")
            yield

    def fails_by_itself():
        train()
        if n == 3:
            raise ValueError("the third step is bad")

    def short():
        for _ in range(4):
            train()
            yield
"""

SCRIPT = """
    import sys
    import torch
    from torch import nn

    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for n in range(40):
        batch = torch.randn(4, 8)
        optimizer.zero_grad()
        loss = model(batch).pow(2).mean()
        if "--guard" in sys.argv and not torch.isfinite(loss):
            continue
        loss.backward()
        optimizer.step()
        if n % 4 == 0:
            torch.save(model.state_dict(), sys.argv[1])
"""

DRILLS = {
    "resumes kill@5": (
        0,
        "It went on with the weights of the end of step 2: 2 completed steps of progress lost.",
    ),
    "forgets_the_moments kill@5": (1, "The optimizer's state was not restored"),
    "begins_again kill@5": (
        1,
        "It began again from the initial weights: 5 completed steps of progress lost.",
    ),
    "saves nan@3": (1, "the NaN reached 4 of 4 parameters at step 3; checkpoint ckpt.pt holds it"),
    "fails_by_itself nan@5": (
        3,
        "undisturbed, the target ended after 2 steps with ValueError: the third step is bad",
    ),
    "short nan@5": (2, "ended after 4 steps: there is no step 5 to drill"),
    "missing nan@5": (2, "has no 'missing'"),
    "saves nan": (2, "is not a fault"),
    "script nan@5": (1, "the NaN reached 2 of 2 parameters at step 5"),
    "script --guard nan@5": (0, "The update of step 5 was left out."),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("drill")
    (path / "mytrainer.py").write_text(textwrap.dedent(TRAINER))
    (path / "script.py").write_text(textwrap.dedent(SCRIPT))
    (path / "ckpt.pt").write_bytes(b"the user's own")
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept.pt").write_bytes(b"the user's own")
    return path


@pytest.fixture(scope="module")
def drills(folder, audit):
    """Every drill, two at a time."""

    def one(name):
        target, *flags, fault = name.split()
        out = folder / f"out {name}"
        words = [
            "drill",
            f"mytrainer:{target}",
            "--inject",
            fault,
            "--out",
            str(out),
            "--steps",
            "9",
        ]
        if target == "script":
            checkpoint = folder.parent / "elsewhere" / ("new.pt" if flags else "kept.pt")
            words = [words[0], "script.py", *words[2:], "--", str(checkpoint), *flags]
        return audit(*words, cwd=folder), out

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(DRILLS, pool.map(one, DRILLS), strict=True))


@pytest.mark.parametrize("name", DRILLS)
def test_exit_code_and_what_is_said(drills, name):
    done, out = drills[name]
    code, said = DRILLS[name]
    assert done.returncode == code, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    if code < 2:
        report = json.loads((out / "drill.json").read_text())
        assert report["survived"] is (code == 0)
        assert done.stdout.rstrip().endswith(report["verdict"])
        assert report["fault"]["planted"]["step"] == report["fault"]["step"]


def test_the_users_files_are_as_they_were(drills, folder):
    assert (folder / "ckpt.pt").read_bytes() == b"the user's own"
    assert not (folder / "run.pt").exists()
    assert (folder.parent / "elsewhere" / "kept.pt").read_bytes() == b"the user's own"
    assert not (folder.parent / "elsewhere" / "new.pt").exists()
