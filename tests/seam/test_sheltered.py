"""Runs after the first leave nothing in the user's folder, and name files as the user's own."""

import json
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="a machine with a GPU rehearses nothing"
)

TRAINER = """
    import json, os, pathlib
    import torch

    HERE = pathlib.Path(__file__).resolve().parent
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 4).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    DATA = json.loads((HERE / "data.json").read_text())
    n = 0

    def step():
        global n
        n += 1
        for place in ("log.txt", str(HERE / "log.txt")):
            with open(place, "a") as file:
                file.write("step\\n")
        torch.save(model.state_dict(), "checkpoint.pt")
        optimizer.zero_grad()
        loss = model(torch.full((2, 8), DATA["x"], device=device)).square().mean()
        loss.item()
        loss.backward()
        optimizer.step()
        {more}
"""

TARGETS = {
    "rehearsed": TRAINER.format(more="pass"),
    "raises": TRAINER.format(more="assert n < 12, 'the twelfth'"),
    "replayed": TRAINER.format(more="DATA['x'] = float('nan') if n == 9 else DATA['x']"),
    "short": TRAINER.format(more="pass") + "\n    for _ in range(20):\n        step()\n",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, audit):
    def one(name):
        folder = tmp_path_factory.mktemp(name)
        (folder / f"{name}.py").write_text(textwrap.dedent(TARGETS[name]))
        (folder / "data.json").write_text('{"x": 1.0}')
        target = f"{name}.py" if name == "short" else f"{name}:step"
        device = "auto" if name in ("rehearsed", "raises") else "cpu"
        words = f"run {target} --steps 8 --warmup 2 --out out --device {device}"
        done = audit(words, cwd=folder, timeout=400)
        return folder, json.loads((folder / "out" / "report.json").read_text()), done

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(TARGETS, pool.map(one, TARGETS), strict=True))


def manifests(folder):
    return {
        str(path.parent.relative_to(folder)): json.loads(path.read_text())
        for path in (folder / "out").rglob("manifest.json")
    }


def rows(folder, name):
    return [
        json.loads(line) for line in (folder / "out" / "recording" / name).read_text().splitlines()
    ]


@pytest.mark.parametrize(
    ("name", "inside"),
    [("rehearsed", "rehearsal"), ("raises", "rehearsal"), ("replayed", "replay")],
)
def test_a_further_run_writes_nothing_into_the_users_folder(runs, name, inside):
    folder, _, _ = runs[name]
    assert f"out/recording/{inside}" in manifests(folder)
    assert {path.name for path in folder.iterdir()} - {"__pycache__"} == {
        "out",
        "log.txt",
        "checkpoint.pt",
        "data.json",
        f"{name}.py",
    }
    taken = len(rows(folder, "steps.jsonl")) + (name == "raises")
    assert len((folder / "log.txt").read_text().splitlines()) == 2 * taken


def test_a_short_script_that_is_run_again_with_fewer_steps_writes_once(runs):
    folder, report, _ = runs["short"]
    assert any("the passes were shortened" in each for each in report["warnings"])
    assert len((folder / "log.txt").read_text().splitlines()) == 2 * 20


@pytest.mark.parametrize("name", TARGETS)
def test_everything_is_named_as_the_users_own_file(runs, name):
    folder, report, done = runs[name]
    where = {finding["site"]["file"] for finding in report["findings"] if finding["site"]}
    assert where == {f"{name}.py"}
    for each in manifests(folder).values():
        assert each["cwd"] == str(folder)
    for path in (folder / "out").rglob("*.json*"):
        if path.suffix != ".gz":
            assert b"/audit-" not in path.read_bytes(), path
    assert "/audit-" not in done.stdout + done.stderr
    if name == "raises":
        assert report["run"]["error"]["site"]["file"] == "raises.py"
    assert not [each for each in report["warnings"] if "while it ran in a copy" in each]
