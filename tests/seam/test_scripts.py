"""Unmodified scripts: steps found from the optimizer, a clean stop, arguments handed through."""

import gzip
import json
import textwrap
from concurrent.futures import ThreadPoolExecutor

import pytest

PLAIN = """
    import argparse, os
    os.environ["SET_BY_SCRIPT"] = "1"
    import torch
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1)
    args = parser.parse_args()
    print("lr is", args.lr)
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
    try:
        for i in range(10_000):
            optimizer.zero_grad()
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
    finally:
        print("finally at", i)
"""

ACCUMULATE = """
    import torch
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    micro = 0
    while True:
        for _ in range(4):
            model(torch.ones(2, 8)).sum().backward()
            micro += 1
        optimizer.step()
        optimizer.zero_grad()
        if micro % 400 == 0:
            break
    print("micro", micro)
"""

GAN = """
    import torch
    g, d = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    og, od = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
    rounds = 0
    while True:
        try:
            rounds += 1
            d(g(torch.randn(2, 4)).detach()).mean().backward(); od.step(); od.zero_grad()
            d(g(torch.randn(2, 4))).mean().backward(); og.step(); og.zero_grad()
        except Exception:
            pass
        finally:
            open("rounds.txt", "w").write(str(rounds))
"""

CRITIC = """
    import torch
    g, d = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    od, og = torch.optim.RMSprop(d.parameters()), torch.optim.RMSprop(g.parameters())
    rounds = 0
    while True:
        rounds += 1
        for _ in range(5):
            d(g(torch.randn(2, 4)).detach()).mean().backward(); od.step(); od.zero_grad()
        d(g(torch.randn(2, 4))).mean().backward(); og.step(); og.zero_grad()
        open("critic_rounds.txt", "w").write(str(rounds))
"""

IN_BACKWARD = """
    import torch
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
    optimizers = {p: torch.optim.SGD([p], lr=0.1, foreach=False) for p in model.parameters()}

    def step_at_once(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(step_at_once)
    for i in range(10_000):
        model(torch.ones(2, 8)).sum().backward()
"""

SWALLOWS = """
    import torch
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        try:
            optimizer.zero_grad()
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()
        except:
            pass
"""

WORKERS = """
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Squares(Dataset):
        def __len__(self):
            return 64
        def __getitem__(self, i):
            return torch.full((8,), float(i))

    if __name__ == "__main__":
        model = torch.nn.Linear(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        for epoch in range(100):
            for batch in DataLoader(Squares(), batch_size=8, num_workers=2, multiprocessing_context="spawn" if epoch == 0 else "fork"):
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
"""

SHORT = """
    import torch
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i in range(24):
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
"""

SCRIPTS = {
    "plain": PLAIN,
    "accumulate": ACCUMULATE,
    "gan": GAN,
    "critic": CRITIC,
    "in_backward": IN_BACKWARD,
    "swallows": SWALLOWS,
    "workers": WORKERS,
    "short": SHORT,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory, audit):
    folder = tmp_path_factory.mktemp("scripts")

    def one(name):
        (folder / f"{name}.py").write_text(textwrap.dedent(SCRIPTS[name]))
        more = ("--", "--lr", "0.25") if name == "plain" else ()
        out = folder / f"out-{name}"
        words = f"run {name}.py --steps 12 --warmup 2 --device cpu --out"
        done = audit(words, str(out), *more, cwd=folder)
        return done, json.loads((out / "report.json").read_text()), out

    with ThreadPoolExecutor(2) as pool:
        return folder, dict(zip(SCRIPTS, pool.map(one, SCRIPTS), strict=True))


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_ends_cleanly(runs, name):
    done, report, _ = runs[1][name]
    assert done.returncode == 0, done.stderr
    assert report["run"]["outcome"] == "completed"
    assert report["run"]["step_us"]["n"] >= (
        3 if name == "short" else 12
    )  # of a short one the causes come first


def test_a_script_that_drops_every_stop_is_ended_with_a_word(runs):
    said = {
        name: [w for w in report["warnings"] if "dropped the stop" in w]
        for name, (_, report, _) in runs[1].items()
    }
    assert len(said.pop("swallows")) == 1
    assert not any(said.values())


def test_the_trace_has_steps_of_its_own(runs):
    _, _, out = runs[1]["plain"]
    passes = {
        each["name"]: each["steps"]
        for each in json.loads((out / "recording" / "manifest.json").read_text())["passes"]
    }
    assert list(passes) == [*("warmup", "quiet", "trace", "loud", "numbers", "gradients")]
    assert (passes["trace"], passes["loud"]) == (5, 12)
    trace = gzip.decompress((out / "recording" / "trace.json.gz").read_bytes()).decode()
    assert [f"ProfilerStep#{n}" in trace for n in range(6)] == [True] * 5 + [False]


def test_what_the_profiler_prints_because_of_us_is_not_shown(runs):
    for done, _, out in runs[1].values():
        assert (
            "profiling started" not in done.stderr + (out / "recording" / "output.txt").read_text()
        )


def test_arguments_reach_the_script_and_finally_runs(runs):
    done, _, out = runs[1]["plain"]
    assert "lr is 0.25" in done.stderr
    assert "finally at" in done.stderr
    assert "lr is 0.25" in (out / "recording" / "output.txt").read_text()
    assert done.stdout.count("\n") >= 1
    assert "lr is" not in done.stdout


def test_accumulated_micro_batches_are_one_step(runs):
    _, _, out = runs[1]["accumulate"]
    rows = [
        json.loads(line) for line in (out / "recording" / "backward.jsonl").read_text().splitlines()
    ]
    per_step: dict[int, int] = {}
    for row in rows:
        per_step[row["step"]] = per_step.get(row["step"], 0) + row["n"]
    assert set(per_step.values()) == {4}


def test_a_gan_takes_one_step_for_both_optimizers(runs):
    folder, results = runs
    rounds = int((folder / "rounds.txt").read_text())
    steps = sum(1 for _ in (results["gan"][2] / "recording" / "steps.jsonl").open())
    assert steps <= rounds <= steps + 5


def test_five_critic_steps_and_a_generator_step_are_one(runs):
    folder, results = runs
    rounds = int((folder / "critic_rounds.txt").read_text())
    steps = sum(1 for _ in (results["critic"][2] / "recording" / "steps.jsonl").open())
    assert steps <= rounds <= steps + 5


def test_the_page_and_the_terminal_say_which_optimizer_ends_a_step(runs):
    said = {
        name: report["environment"].get("a step ends with")
        for name, (_, report, _) in runs[1].items()
    }
    assert said["gan"] == "Adam (gan.py:10); Adam (gan.py:9) steps once within it"
    assert said["critic"] == "RMSprop (critic.py:10); RMSprop (critic.py:9) steps 5 times within it"
    assert said["plain"] is None and said["accumulate"] is None
    for name in ("gan", "critic", "plain"):
        done, _, out = runs[1][name]
        assert ("a step ends with" in done.stdout + done.stderr) is (said[name] is not None)
        assert ("a step ends with" in (out / "report.html").read_text()) is (said[name] is not None)


def test_optimizers_that_step_inside_the_backward_end_a_step_after_it(runs):
    _, _, out = runs[1]["in_backward"]
    rows = [
        json.loads(line) for line in (out / "recording" / "backward.jsonl").read_text().splitlines()
    ]
    assert [(row["step"], row["n"]) for row in rows if row["pass"] == "loud"] == [
        (step, 1) for step in range(12)
    ]


def test_a_short_script_is_run_again_with_passes_that_fit(runs):
    _, report, _ = runs[1]["short"]
    assert any("ends after" in warning for warning in report["warnings"])
    assert {v["status"] for v in report["verdicts"] if v["code"] == "GRAPH002"} == {"clean"}


PROGRAM = """
    import argparse, sys
    {imports}
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    args = parser.parse_args()
    import torch
    from pkg import helper
    model = torch.nn.Linear(4, 2)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(60):
        helper.loss(model).backward()
        sgd.step()
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package whose program uses relative imports, which only ``python -m`` can run."""
    folder = tmp_path_factory.mktemp("modules")
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").write_text("import torch\n")
    (folder / "pkg" / "helper.py").write_text(
        "import torch\ndef loss(model):\n    return model(torch.ones(3, 4)).sum()\n"
    )
    (folder / "pkg" / "__main__.py").write_text("from .train import *\n")
    (folder / "pkg" / "train.py").write_text(
        textwrap.dedent(PROGRAM.format(imports="from . import helper as same"))
    )
    (folder / "args.py").write_text(textwrap.dedent(PROGRAM.format(imports="")))
    (folder / "group.py").write_text(
        "import click\n@click.command()\n@click.option('--data', required=True)\ndef f(data): "
        "pass\nf()\n"
    )
    (folder / "leaves.py").write_text("import sys\nsys.exit(2)\n")
    return folder


def test_a_module_runs_as_python_runs_it(package, audit):
    out = package / "out"
    words = "run -m pkg --steps 6 --device cpu --select GRAPH --out out -- --data x"
    done = audit(words, cwd=package)
    assert done.returncode == 0, done.stderr
    run = json.loads((out / "report.json").read_text())["run"]
    assert (run["target"], run["outcome"], run["training"]) == ("-m pkg", "completed", "trained")
    sources = json.loads((out / "recording" / "manifest.json").read_text())["sources"]
    assert any(file.endswith("train.py") for file in sources)


REFUSED = {
    "args.py": "args.py refused its arguments: the following arguments are required: --data",
    "-m pkg.train": "python -m pkg.train refused its arguments: the following "
    "arguments are required: --data",
    "group.py": "group.py refused its arguments: ",
    "leaves.py": "leaves.py refused its arguments: it left with exit code 2 before its first step",
    "args:step": "args refused its arguments when it was imported: the "
    "following arguments are required: --data",
    "-m pkg.trian": "there is no module 'pkg.trian'",
    "-m pgk.train": "did you mean 'pkg'?",
}


@pytest.mark.parametrize("words", REFUSED)
def test_a_program_that_refuses_its_arguments_is_told_where_they_stand(package, audit, words):
    done = audit("run", *words.split(), cwd=package)
    assert done.returncode == 2, done.stderr
    assert REFUSED[words] in done.stderr
    assert "Traceback" not in done.stderr and done.stdout == ""
    assert words != "group.py" or "Missing option '--data'" in done.stderr
    if "refused" in REFUSED[words]:
        assert f"after --: audit run {words} -- ..." in done.stderr
    assert not (package / "audits").exists() or not list((package / "audits").iterdir())
