"""What looking for NaNs costs on a launch-bound step; printed by ``nan_origins.py``, or alone:
python benchmarks/nan_watch_cost.py

Each block of ten steps under a tool stands between two bare blocks and is divided by their mean;
CPU time of the thread, median over the rounds. A block's tool is switched on before its first step,
which is not counted.
"""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
BLOCK = 10
Step = Callable[[], None]
Tool = Callable[[nn.Module], Any]


def trainer(width: int = 32, layers: int = 4) -> tuple[nn.Module, Step]:
    """A launch-bound transformer step, about 800 operators."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(256, width),
        nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
        nn.Linear(width, 256),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens, labels = torch.randint(0, 256, (2, 16)), torch.randint(0, 256, (2, 16))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return model, step


# -- tools -----------------------------------------------------------------------------------------


@contextmanager
def bare(model: nn.Module) -> Iterator[None]:
    """Nothing."""
    yield


@contextmanager
def anomaly(model: nn.Module) -> Iterator[None]:
    """torch.autograd.detect_anomaly."""
    with torch.autograd.set_detect_anomaly(True):
        yield


@contextmanager
def underflow_overflow(model: nn.Module) -> Iterator[None]:
    """Transformers' DebugUnderflowOverflow."""
    from transformers.debug_utils import DebugUnderflowOverflow

    before = {module: dict(module._forward_hooks) for module in model.modules()}
    with contextlib.redirect_stdout(io.StringIO()):
        DebugUnderflowOverflow(model)
        yield
    for module, hooks in before.items():
        module._forward_hooks.clear()
        module._forward_hooks.update(hooks)


def watched(pass_name: str, *names: str) -> Tool:
    """Probes of ours, as their pass runs them, boundaries of the step included."""

    @contextmanager
    def tool(model: nn.Module) -> Iterator[Callable[[Step], None]]:
        from auditor.capture.instruments.user_frames import Frames
        from auditor.capture.probes.base import Context
        from auditor.capture.probes.registry import PROBES
        from auditor.model.devices import CPU
        from auditor.recordings.folder import RecordingWriter

        with tempfile.TemporaryDirectory() as folder:
            writer = RecordingWriter(Path(folder))
            context = Context(writer, Frames(writer), CPU, pass_name, watched=range(10**9))
            probes = [probe(context) for probe in PROBES if probe.name in names]
            for probe in probes:
                probe.install()
                probe.start()

            def run(step: Step) -> None:
                for probe in probes:
                    probe.step_begin()
                context.in_step = True
                step()
                context.in_step = False
                for probe in probes:
                    probe.step_end()
                context.step += 1
                context.global_step += 1
                writer.flush()

            yield run
            for probe in reversed(probes):
                probe.stop()
                probe.uninstall()
            writer.close()

    return tool


OURS = {
    "ours: watch of the quiet pass (every fifth step)": watched("quiet", "finite", "norms"),
    "ours: watch of the loud pass (every step)": watched("loud", "finite", "norms"),
    "ours: numbers pass (3 steps of a run)": watched("numbers", "numerics"),
    "ours: replay's watch (at most 16 steps, after a bad one only)": watched("replay", "birth"),
}


# -- measuring -------------------------------------------------------------------------------------


def block(model: nn.Module, step: Step, tool: Tool) -> float:
    """CPU seconds of a step under the tool."""
    with tool(model) as run:
        do = run or (lambda step: step())
        do(step)
        start = time.thread_time()
        for _ in range(BLOCK):
            do(step)
        return (time.thread_time() - start) / BLOCK


def ratios(tools: dict[str, Tool], rounds: int) -> dict[str, float]:
    """Median ratio to bare, by tool."""
    model, step = trainer()
    found: dict[str, list[float]] = {name: [] for name in tools}
    block(model, step, bare)
    for _ in range(rounds):
        before = block(model, step, bare)
        for name, tool in tools.items():
            cost, after = block(model, step, tool), block(model, step, bare)
            found[name].append(cost / ((before + after) / 2))
            before = after
    return {name: statistics.median(each) for name, each in found.items()}


def table(hf: str | None, rounds: int) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    found = ratios(
        {"bare again (noise)": bare, **OURS, "torch.autograd.detect_anomaly": anomaly}, rounds
    )
    if hf:
        command = [hf, __file__, "--child", str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.update(json.loads(done.stdout.splitlines()[-1]))
    print("\n| tool | x bare step |\n|---|---|")
    for name, ratio in found.items():
        print(f"| {name} | {ratio:.2f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        torch.set_num_threads(1)
        print(
            json.dumps(
                ratios(
                    {"transformers DebugUnderflowOverflow": underflow_overflow}, int(sys.argv[2])
                )
            )
        )
    else:
        table(None, 7)
