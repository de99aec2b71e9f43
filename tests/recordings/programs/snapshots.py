"""Trainings whose memory snapshots lie in ``data/snap_*``.

``python snapshots.py NAME OUT.pickle`` with a CUDA build of torch writes one of them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import torch
from torch import Tensor, nn
from torch.nn import functional as F

KEPT: list[object] = []
"""What is still there when the snapshot is taken."""

WIDTH, HEADS, LAYERS, WORDS, BATCH = 256, 4, 3, 8000, 8


class Model(nn.Module):
    """A language model of 3 blocks and 6.5 million parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        block = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.blocks(self.words(tokens)))


class Trainer:
    """One model, AdamW, and a step on tokens of shape (batch, length)."""

    def __init__(self) -> None:
        self.model = Model().cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        KEPT.append(self)

    def step(self, length: int = 128, batch: int = BATCH) -> Tensor:
        tokens = torch.randint(0, WORDS, (batch, length), device="cuda")
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(tokens).view(-1, WORDS), tokens.view(-1))
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def forward_only(self, length: int = 128) -> Tensor:
        tokens = torch.randint(0, WORDS, (BATCH, length), device="cuda")
        return F.cross_entropy(self.model(tokens).view(-1, WORDS), tokens.view(-1))


def train() -> None:
    """Five steps, the history from the first byte on."""
    record()
    trainer = Trainer()
    for _ in range(5):
        trainer.step()


def graph_kept() -> None:
    """The losses of four forward passes are kept with their graphs."""
    record()
    trainer = Trainer()
    KEPT.extend(trainer.forward_only(64) for _ in range(4))


def empty_cache() -> None:
    """The cache is emptied after each step."""
    record()
    trainer = Trainer()
    for _ in range(10):
        trainer.step()
        torch.cuda.empty_cache()


def growing() -> None:
    """Sequences grow from step to step; a card of 1 GiB gets full of blocks that are too small."""
    record(stacks="all")
    trainer = Trainer()
    for length in range(64, 417, 32):
        trainer.step(length)


def out_of_memory() -> None:
    """A batch that the card of 1 GiB cannot hold."""
    record()
    trainer = Trainer()
    trainer.step()
    with suppress(torch.cuda.OutOfMemoryError):
        trainer.step(512, 32)


def two_streams() -> None:
    """Batches are prepared on a stream of their own and used on another (``record_stream``)."""
    record()
    trainer = Trainer()
    side = torch.cuda.Stream()
    for batch in prepared(side):
        batch.record_stream(torch.cuda.current_stream())
        trainer.step()
        batch.mul(2)


def prepared(side: torch.cuda.Stream) -> Iterator[Tensor]:
    for number in range(6):
        with torch.cuda.stream(side):
            batch = torch.randn(64, 1024, 32 * (number % 3 + 1), device="cuda").mul_(2)
        yield batch


def late_history() -> None:
    """The ring holds 1500 entries, fewer than the six steps leave."""
    record(1500)
    trainer = Trainer()
    for _ in range(6):
        trainer.step()


def no_history() -> None:
    """Nobody asked for a history."""
    Trainer().step()


def record(entries: int = 100_000, stacks: str = "python") -> None:
    torch.cuda.memory._record_memory_history(max_entries=entries, stacks=stacks)


STATS = ("allocated_bytes.all.peak", "reserved_bytes.all.peak", "num_alloc_retries", "num_ooms")
"""What torch itself says of each run: ``torch_stats`` in truth.json."""

PROGRAMS: dict[str, Callable[[], None]] = {
    one.__name__: one
    for one in (
        train,
        graph_kept,
        empty_cache,
        growing,
        out_of_memory,
        two_streams,
        late_history,
        no_history,
    )
}

if __name__ == "__main__":
    torch.backends.cuda.enable_cudnn_sdp(False)
    PROGRAMS[sys.argv[1]]()
    torch.cuda.memory._dump_snapshot(sys.argv[2])
    print(json.dumps({name: torch.cuda.memory_stats()[name] for name in STATS}))
