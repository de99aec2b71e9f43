"""Does the price by the pass ``eager_held`` agree with a run without the compiler?

``python benchmarks/compile_price.py`` audits ten compiled programs, and each of them once more with
``TORCH_COMPILE_DISABLE=1``. Both give an interval: what a step gains by compiling, from the passes
``quiet`` and ``eager_held`` of one process, and from the passes ``quiet`` of both processes. They agree where the intervals meet. By hand, on a quiet
machine: it refuses a load of 3 or more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from auditor.batch_means import Estimate
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence
from auditor.recordings.folder import Recording

HEAD = """
import torch
from torch import nn
torch.manual_seed(0)
torch.set_num_threads(1)
"""
TAIL = """
opt = torch.optim.{optimizer}(model.parameters(), lr=0.001)
run = torch.compile({what}, backend="{backend}")
def step():
    opt.zero_grad()
    loss({call}).backward()
    opt.step()
def loss(out):
    return out.float().square().mean()
"""
NETS = {
    "mlp": "model = nn.Sequential(*[nn.Sequential(nn.Linear({n}, {n}), nn.GELU()) for _ in range(6)])\n"
    "x = torch.randn(64, {n})\n",
    "norms": "model = nn.Sequential(*[nn.Sequential(nn.LayerNorm({n}), nn.Linear({n}, {n}), nn.SiLU())"
    " for _ in range(4)])\nx = torch.randn(128, {n})\n",
    "convs": "model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(),"
    " nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU())\nx = torch.randn(8, 3, {n}, {n})\n",
    "attention": "model = nn.TransformerEncoderLayer({n}, 4, {n} * 2, batch_first=True, dropout=0.0)\n"
    "x = torch.randn(4, 32, {n})\n",
    "points": "model = nn.Linear({n}, {n})\nx = torch.randn(256, {n})\n",
}
PROGRAMS = [
    (net, n, backend)
    for net, sizes in (
        ("mlp", (64, 256)),
        ("norms", (64, 256)),
        ("convs", (16, 32)),
        ("attention", (32, 64)),
        ("points", (64, 512)),
    )
    for n, backend in zip(sizes, ("inductor", "aot_eager"), strict=True)
]
"""Net, size and backend."""
BUSY = 3.0
ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    """Print a line for each program: 0 if at least nine agree."""
    if os.getloadavg()[0] >= BUSY:
        print("the machine is busy: no numbers")
        return 2
    agreed = 0
    for net, size, backend in PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            name = f"{net}_{size}_{backend}"
            told = _told(Path(folder), net, size, backend)
        if told is None:
            print(f"{name:24} no step was compiled", flush=True)
            continue
        held, apart = told
        meets = held.low <= apart.high and apart.low <= held.high
        agreed += meets
        print(
            f"{name:24} {_said(held)}   {_said(apart)}   {'agrees' if meets else 'DIFFERS'}",
            flush=True,
        )
    print(f"{agreed} of {len(PROGRAMS)} agree")
    return 0 if agreed >= 9 else 1


def _told(folder: Path, net: str, size: int, backend: str) -> tuple[Estimate, Estimate] | None:
    """What a step gains: within one process, and by the step times of two."""
    text = HEAD + NETS[net].format(n=size)
    text += TAIL.format(optimizer="SGD", what="model", backend=backend, call="run(x)")
    (folder / "program.py").write_text(text)
    compiled = _audited(folder, "compiled", {})
    plain = _audited(folder, "plain", {"TORCH_COMPILE_DISABLE": "1"})
    gained = compiled.gained_by_compile()
    apart = replace(compiled, eager_held=plain.quiet).gained_by_compile()
    return None if gained is None or apart is None else (gained, apart)


def _audited(folder: Path, name: str, more: dict[str, str]) -> Steps:
    command = [sys.executable, "-m", "auditor", "run", "program:step", "--steps", "100"]
    done = subprocess.run(
        [*command, "--out", name],
        cwd=folder,
        env={**os.environ, **more, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    room = folder / name / "recording"
    if not room.is_dir():
        raise SystemExit(json.dumps(done.stderr[-800:]))
    return Evidence(Recording(room)).get(Steps)


def _said(each: Estimate) -> str:
    return f"{each.value / 1e3:7.3f} ms [{each.low / 1e3:.3f} to {each.high / 1e3:.3f}]"


if __name__ == "__main__":
    sys.exit(main())
