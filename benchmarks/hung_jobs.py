"""Ten ways to hang a job of four ranks: who is named, and at which line?

    python -m benchmarks.hung_jobs [--world-python .venv-cuda/bin/python] [NAME ...]

Each program is run twice. First for real, by four processes of gloo whose collectives time out:
torch's flight recorder writes its dumps, and ``audit analyze`` reads them. Then, with
``--world-python`` (a CUDA build of torch), before it hangs: ``audit run --world 4`` rehearses all
ranks on the null device. Named is a finding of DIST011 at the line of ``# HERE``, where ranks wait
or the first of them differs, with the rank that does not come in its message. docs/ranks.md has the
table.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORLD = 4
TIMEOUT_S = 5

HEAD = f"""\
import datetime, os, sys, time
import torch
import torch.distributed as dist

DEV = os.environ.get("JOB_DEVICE", "cuda")
dist.init_process_group(
    "nccl" if DEV == "cuda" else "gloo", timeout=datetime.timedelta(seconds={TIMEOUT_S})
)
rank, world = dist.get_rank(), dist.get_world_size()
if DEV == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
pair = dist.new_group([0, 1])
model = torch.nn.Linear(8, 8).to(DEV)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
total, other = torch.ones(4, device=DEV), torch.ones(8, device=DEV)


def train(x):
    optimizer.zero_grad()
    model(x).sum().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)  # GRADIENTS
    optimizer.step()


"""

TAIL = """
try:
    for i in range(20):
        step(i)
except RuntimeError:
    pass
if DEV != "cuda":
    import torch._C._distributed_c10d as c10d

    with open(f"dumps/nccl_trace_rank_{rank}", "wb") as file:
        file.write(c10d._dump_fr_trace())
    os._exit(0)
"""

JOBS = {
    "one rank has a batch less": (
        "rank 2",
        """
def step(i):
    if i == 9 and rank == 2:
        raise RuntimeError("its data is at an end")
    train(torch.randn(2, 8, device=DEV))
    dist.all_reduce(total)
""",
        "GRADIENTS",
    ),
    "one rank broadcasts": (
        "rank 2",
        """
def step(i):
    train(torch.randn(2, 8, device=DEV))
    if i >= 3 and rank == 2:
        dist.broadcast(total, 2)
    else:
        dist.all_reduce(total)  # HERE
""",
        "HERE",
    ),
    "barrier around a save of rank 0": (
        "rank 0",
        """
def step(i):
    train(torch.randn(2, 8, device=DEV))
    if i % 4 == 3 and rank == 0:
        dist.barrier()  # HERE
""",
        "GRADIENTS|HERE",
    ),
    "metrics gathered on rank 0 only": (
        "rank 0",
        """
def step(i):
    train(torch.randn(2, 8, device=DEV))
    if rank == 0 and i == 5:
        dist.all_gather([torch.empty_like(other) for _ in range(world)], other)  # HERE
""",
        "GRADIENTS|HERE",
    ),
    "two collectives in another order": (
        "rank 3",
        """
def step(i):
    train(torch.randn(2, 8, device=DEV))
    if rank == 3:
        dist.broadcast(other, 0)
        dist.all_reduce(total)
    else:
        dist.all_reduce(total)  # HERE
        dist.broadcast(other, 0)
""",
        "HERE",
    ),
    "a step skipped for its loss": (
        "rank 1",
        """
def step(i):
    if i == 6 and rank == 1:
        return  # as for a loss that is not finite
    train(torch.randn(2, 8, device=DEV))
    dist.broadcast(total, 0)  # HERE
""",
        "GRADIENTS|HERE",
    ),
    "a subgroup that one member leaves out": (
        "rank 1",
        """
def step(i):
    train(torch.randn(2, 8, device=DEV))
    if rank == 0:
        dist.all_reduce(other, group=pair)  # HERE
""",
        "HERE",
    ),
    "one rank stays in Python": (
        "rank 3",
        """
def step(i):
    train(torch.randn(2, 8, device=DEV))
    if i == 4 and rank == 3 and DEV == "cpu":
        time.sleep(TIMEOUT)
        raise RuntimeError("ended from outside")
    dist.broadcast(total, 0)  # HERE
""",
        "HERE",
    ),
    "tensors of another size": (
        "rank 2",
        """
def step(i):
    train(torch.randn(2, 8, device=DEV))
    if rank == 2:
        dist.broadcast(other, 0)
    else:
        dist.broadcast(total, 0)  # HERE
""",
        "HERE",
    ),
    "a parameter that one rank does not use": (
        "rank 1",
        """
unused = torch.nn.Parameter(torch.ones(3, device=DEV))


def step(i):
    train(torch.randn(2, 8, device=DEV))
    loss = total.sum() if rank == 1 else (unused * 2).sum()
    if loss.requires_grad:
        loss.backward()
        dist.all_reduce(unused.grad)  # HERE
""",
        "GRADIENTS|HERE",
    ),
}
"""Name -> the rank that differs, the step, and the marks of the lines that are right."""


def written(folder: Path, step: str) -> str:
    """The program, as ``job.py`` in the folder."""
    text = HEAD + step.lstrip("\n").replace("TIMEOUT", str(TIMEOUT_S + 2)) + TAIL
    (folder / "job.py").write_text(text)
    (folder / "dumps").mkdir()
    return text


def hung(folder: Path) -> list[dict[str, Any]]:
    """What ``audit analyze`` says of the dumps of four ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        "JOB_DEVICE": "cpu",
        "TORCH_FR_BUFFER_SIZE": "500",
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(WORLD),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "job.py"],
            cwd=folder,
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for rank in range(WORLD)
    ]
    for each in ranks:
        each.wait(180)
    return findings(sys.executable, folder, "analyze", "dumps")


def rehearsed(python: str, folder: Path) -> list[dict[str, Any]]:
    """What ``audit run --world`` says before it hangs."""
    words = "run", "job.py", "--world", str(WORLD), "--ranks", "0,1,2,3", "--select", "DIST011"
    return findings(python, folder, *words)


def findings(python: str, folder: Path, *words: str) -> list[dict[str, Any]]:
    """Those of DIST011 in the report of one command; raises SystemExit where there is no report."""
    done = subprocess.run(
        [python, "-m", "auditor", *words, "--out", str(folder / f"out-{words[0]}")],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    file = folder / f"out-{words[0]}" / "report.json"
    if not file.is_file():
        raise SystemExit(done.stdout + done.stderr)
    found: list[dict[str, Any]] = json.loads(file.read_text())["findings"]
    return [each for each in found if each["code"] == "DIST011"]


def verdict(found: list[dict[str, Any]], text: str, rank: str, marks: str) -> str:
    """Whether the rank and a right line are named."""
    if not found:
        return "nothing"
    lines, (first, *_) = text.splitlines(), found
    at = [lines[site["line"] - 1] for site in (first["site"], *first["places"]) if site]
    right = any(f"# {mark}" in each for mark in marks.split("|") for each in at)
    named = rank in first["message"] or rank.replace("rank", "ranks") in first["message"]
    said = first["message"].splitlines()[0]
    return f"{'named' if right and named else 'MISSED'}: {said}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--world-python", default="")
    options = parser.parse_args()
    print("| the job | from its dumps | before it hangs |\n|---|---|---|")
    for name, (rank, step, marks) in JOBS.items():
        if options.names and name not in options.names:
            continue
        with tempfile.TemporaryDirectory() as at:
            folder = Path(at)
            text = written(folder, step)
            said = [verdict(hung(folder), text, rank, marks)]
            if options.world_python:
                found = rehearsed(options.world_python, folder)
                said.append(verdict(found, text, rank, marks))
            print(f"| {name} | {' | '.join(said)} |", flush=True)


if __name__ == "__main__":
    main()
