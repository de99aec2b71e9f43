"""What a rehearsal predicts as peak device memory of a GPT training step, against torch's own
MemTracker and, if there is one, a GPU.

    OMP_NUM_THREADS=2 python benchmarks/predicted_memory.py [size ...]

Each measure runs in a process of its own: two steps to warm up, then the peak of one step, in bytes
that tensors hold. The program is the same on all: foreach AdamW, clipping, plain attention.
MemTracker (private to torch, ``torch.distributed._tools``) runs it on the CPU; the rehearsal on the
shadow device; the GPU, where there is one, says ``max_memory_allocated``, which leaves out its
context. Goal: within 10 % of each other.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
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

Size = tuple[int, int, int, int, bool]
SIZES: dict[str, Size] = {
    "d=128, fp32": (128, 4, 8, 128, False),
    "d=256, fp32": (256, 6, 8, 128, False),
    "d=384, fp32, long": (384, 6, 4, 512, False),
    "d=256, bf16 autocast": (256, 6, 8, 128, True),
}
"""Width, layers, batch, tokens, autocast to bfloat16."""

VOCABULARY, HEADS, WARM_UP = 8192, 8, 2
MIB = 2**20


class Block(nn.Module):
    """One layer of a GPT, with attention written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention and MLP, each added to what came in."""
        batch, tokens, width = x.shape
        q, k, v = self.attend(self.norm(x)).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        future = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        attended = scores.masked_fill(future, -math.inf).softmax(-1) @ v
        x = x + self.project(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.mlp(self.norm_mlp(x))


class Gpt(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self, width: int, layers: int, tokens: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(tokens, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        places = self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(self.norm(self.blocks(self.words(x) + places)))


class Trainer:
    """The audited program."""

    def __init__(self, device: str, size: Size) -> None:
        width, layers, batch, tokens, half = size
        torch.manual_seed(0)
        self.device, self.half = device, half
        self.model = Gpt(width, layers, tokens).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=True)
        self.x = torch.randint(0, VOCABULARY, (batch, tokens)).to(device)

    def step(self) -> None:
        """One training step."""
        self.optimizer.zero_grad()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.half):
            loss = nn.functional.cross_entropy(self.model(self.x).flatten(0, 1), self.x.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def rehearsed(size: Size) -> int:
    """The peak in the simulated allocator, without cuBLAS' workspaces."""
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordingWriter(Path(folder))
        probe = RehearsalProbe(
            Context(writer, Frames(writer, (str(Path(__file__)),)), device=SHADOW)
        )
        probe.install()
        try:
            trainer = Trainer("cuda", size)
            return _peak_of(
                trainer.step,
                probe.memory.reset_peak,
                lambda: probe.memory.counters()["peak_allocated"] - probe.memory.workspace_bytes,
            )
        finally:
            probe.uninstall()
            writer.close()


def tracked(size: Size) -> int:
    """The peak that MemTracker sees on the CPU."""
    from torch.distributed._tools.mem_tracker import MemTracker

    trainer = Trainer("cpu", size)
    for _ in range(WARM_UP):
        trainer.step()
    tracker = MemTracker()
    tracker.track_external(trainer.model, trainer.optimizer, trainer.x)
    with tracker:
        trainer.step()
    return int(tracker.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"])


def real(size: Size) -> int:
    """The peak on the GPU."""
    trainer = Trainer("cuda", size)
    return _peak_of(
        trainer.step, torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated
    )


def _peak_of(step: Callable[[], None], reset: Callable[[], None], peak: Callable[[], int]) -> int:
    for _ in range(WARM_UP):
        step()
    reset()
    step()
    return peak()


MEASURES = {"rehearsed": rehearsed, "tracked": tracked, "real": real}


def in_a_process(measure: str, size: str) -> int | None:
    """The number that a fresh process prints; None, with the reason on stderr, where it fails."""
    hidden = {} if measure == "real" else {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, __file__, "--one", measure, size],
        env={**os.environ, **hidden},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        print(f"{measure}, {size}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return int(done.stdout.split()[-1])


def main(sizes: list[str]) -> None:
    """One row of a table for each size."""
    measures = [name for name in MEASURES if name != "real" or torch.cuda.is_available()]
    print(
        "| step | "
        + " | ".join(f"{name}, MiB" for name in measures)
        + " | rehearsed against them |"
    )
    print("|---" * (len(measures) + 2) + "|")
    for size in sizes:
        peaks = {name: in_a_process(name, size) for name in measures}
        mine = peaks.pop("rehearsed")
        shares = [
            f"{100 * (mine / other - 1):+.1f} %" for other in peaks.values() if mine and other
        ]
        cells = [mine, *peaks.values()]
        print(
            f"| {size} | "
            + " | ".join("-" if n is None else f"{n / MIB:.1f}" for n in cells)
            + f" | {', '.join(shares) or '-'} |"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(MEASURES[sys.argv[2]](SIZES[sys.argv[3]]))
    else:
        main(sys.argv[1:] or list(SIZES))
