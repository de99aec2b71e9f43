"""``audit drill`` as a user runs it: whole processes, scripts, restarts, exit codes, leftovers."""

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

    def begins_again():
        while True:
            train()
            save("run.pt")
            yield

    def fails_by_itself():
        train()
        if n == 3:
            raise ValueError("the third step is bad")

    def guards():
        batch = x[:16]
        optimizer.zero_grad()
        loss = (model(batch).squeeze(1) - batch.sum(1)).pow(2).mean()
        if not torch.isfinite(loss):
            raise FloatingPointError(f"loss is {loss.item()}")
        loss.backward()
        optimizer.step()

    def skips():
        optimizer.zero_grad()
        loss = model(x[:16]).pow(2).mean()
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()

    normed = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    norm_optimizer = torch.optim.SGD(normed.parameters(), lr=1e-3)

    def remembers():
        norm_optimizer.zero_grad()
        loss = normed(x[:16]).pow(2).mean()
        if torch.isfinite(loss):
            loss.backward()
            norm_optimizer.step()

    def retries():
        batch = x[:16]
        for _ in range(2):
            optimizer.zero_grad()
            try:
                model(batch).pow(2).mean().backward()
                break
            except torch.OutOfMemoryError:
                continue
        optimizer.step()

    def walks_again():
        optimizer.zero_grad()
        loss = model(x[:16]).pow(2).mean()
        try:
            loss.backward()
        except torch.OutOfMemoryError:
            loss.backward()
        optimizer.step()

    def no_module():
        pass

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
    "resumes kill@5": (0, "survived kill@5: started again, it went on from saved weights"),
    "begins_again kill@5": (1, "it began from the initial weights: 5 completed steps lost"),
    "saves nan@3": (1, "FAILED nan@3: the NaN is in"),
    "saves inf@3": (1, "FAILED inf@3: the infinity is in"),
    "guards nan@3": (0, "it stopped in step 3 with FloatingPointError: loss is nan"),
    "skips nan@3": (0, "survived nan@3: it went on for 5 steps, and weights"),
    "remembers nan@3": (1, "running_mean of BatchNorm1d"),
    "retries oom@3": (0, "survived oom@3: it went on for 5 steps"),
    "walks_again oom@3": (1, "FAILED oom@3: it stopped in step 3 with RuntimeError: Trying to"),
    "saves oom@3": (1, "FAILED oom@3: it stopped in step 3 with OutOfMemoryError"),
    "no_module nan@3": (2, "no module returned a floating-point tensor"),
    "fails_by_itself nan@5": (
        3,
        "ended after 2 steps, before the fault, with ValueError: the third step is bad",
    ),
    "short nan@5": (2, "ended after 4 steps: there is no step 5 to drill"),
    "missing nan@5": (2, "has no 'missing'"),
    "saves nan": (2, "is not a fault"),
    "script nan@0": (2, "a script's step 0 ends before its steps are known"),
    "script nan@5": (1, "FAILED nan@5: the NaN is in 2 tensors after step"),
    "script --guard nan@5": (0, "survived nan@5"),
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
        words = f"drill mytrainer:{target} --inject {fault} --steps 9 --out".split()
        words.append(str(out))
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


def test_the_users_files_are_as_they_were(drills, folder):
    assert (folder / "ckpt.pt").read_bytes() == b"the user's own"
    assert not (folder / "run.pt").exists()
    assert (folder.parent / "elsewhere" / "kept.pt").read_bytes() == b"the user's own"
    assert not (folder.parent / "elsewhere" / "new.pt").exists()
