"""What a rehearsal costs: a step on the shadow device against the same step on the plain CPU, in
turn, in one run.

    OMP_NUM_THREADS=1 python benchmarks/rehearsal.py [rounds]

CPU time of this thread per step; the shadow is heard by the rehearsal's own probe, its simulated
allocator and all. The smallest of the rounds is compared. Goals: at most 8x on a launch-bound step,
1.3x at 300 ms.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from auditor.capture.instruments.user_frames import Frames  # noqa: E402
from auditor.capture.probes.base import Context  # noqa: E402
from auditor.capture.probes.rehearsal import RehearsalProbe  # noqa: E402
from auditor.model.devices import SHADOW  # noqa: E402
from auditor.recordings.folder import RecordingWriter  # noqa: E402

SIZES = {"launch-bound": (32, 2, 16), "about 50 ms": (128, 8, 64), "about 300 ms": (256, 8, 128)}
"""Width, batch and tokens of the transformer."""


def transformer(device: str, width: int, batch: int, tokens: int) -> Callable[[], None]:
    """A training step of a four-layer transformer."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, dropout=0.0)
    model = nn.Sequential(
        nn.Embedding(256, width),
        nn.TransformerEncoder(layer, 4, enable_nested_tensor=False),
        nn.Linear(width, 256),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randint(0, 256, (batch, tokens)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def best(step: Callable[[], None], rounds: int, around: Callable[[], None] = lambda: None) -> float:
    """CPU seconds of the cheapest step; ``around`` runs after each, in its time."""
    step()
    times = []
    for _ in range(rounds):
        begin = time.thread_time()
        step()
        around()
        times.append(time.thread_time() - begin)
    return min(times)


def rehearsed(rounds: int, size: tuple[int, int, int]) -> float:
    """CPU seconds of a step on the shadow device."""
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordingWriter(Path(folder))
        context = Context(
            writer,
            Frames(writer, (str(Path(__file__)),)),
            device=SHADOW,
            pass_name="loud",
            in_step=True,
        )
        probe = RehearsalProbe(context)
        probe.install()
        try:
            probe.start()
            return best(transformer("cuda", *size), rounds, probe.step_end)
        finally:
            probe.stop()
            probe.uninstall()
            writer.close()


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    for name, size in SIZES.items():
        plain, shadow = best(transformer("cpu", *size), rounds), rehearsed(rounds, size)
        print(f"{name:14} {1e3 * plain:7.1f} ms on the CPU, x{shadow / plain:.2f} rehearsed")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 12)
