"""Whole trainings that are recorded on torch's own caching allocator; only torch is imported."""

import contextlib
import functools
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

Mark = Callable[[], None]
Program = Callable[[Mark], None]
WORDS = 1024


class Block(nn.Module):
    """One layer of a GPT."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention and MLP, each added to what came in."""
        batch, tokens, width = x.shape
        parts = self.qkv(self.first(x)).view(batch, tokens, 3, self.heads, -1)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    """Embedding, blocks, head."""

    def __init__(self, width: int = 384, layers: int = 4, heads: int = 6) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, width)
        self.places = nn.Embedding(1024, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, WORDS, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _loss(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(x).flatten(0, 1), x.flatten())


def _batch(batch: int, tokens: int) -> torch.Tensor:
    return torch.randint(0, WORDS, (batch, tokens)).cuda(non_blocking=True)


def gpt(mark: Mark) -> None:
    """bf16 autocast, foreach AdamW, clipping."""
    model = Gpt().cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        with torch.autocast("cuda", torch.bfloat16):
            loss = _loss(model, _batch(8, 256))
        loss.backward()
        mark()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        mark()


def accumulation(mark: Mark) -> None:
    """fp16 with a scaler, gradients of three micro-batches, fused AdamW, validation."""
    model = Gpt(256, 3, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(3):
        for _ in range(3):
            with torch.autocast("cuda", torch.float16):
                loss = _loss(model, _batch(6, 200)) / 3
            scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=False)
        mark()
        with torch.no_grad():
            _loss(model, _batch(20, 300))
        mark()


def lengths(mark: Mark) -> None:
    """Another length with each step, so that the cache fragments."""
    model = Gpt(384, 4, 6).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(0)
    for step in range(14):
        tokens = int(torch.randint(20, 700, (), generator=generator))
        _loss(model, _batch(6, tokens)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 8:
            torch.cuda.empty_cache()
        mark()


class Residual(nn.Module):
    """Two convolutions beside a short cut."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.two = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norm_one, self.norm_two = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        self.short = nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of both ways."""
        out = self.norm_two(self.two(F.relu(self.norm_one(self.one(x)))))
        return F.relu(out + self.short(x))


def convolutions(mark: Mark) -> None:
    """A small residual network, channels last, bf16 autocast; the last batch is smaller."""
    widths = [(32, 32, 1), (32, 64, 2), (64, 128, 2), (128, 256, 2)]
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 7, 2, 3), nn.BatchNorm2d(32), nn.ReLU()]
    layers += [Residual(*each) for each in widths]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 100)]
    model = nn.Sequential(*layers).cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    for batch in (16, 16, 16, 5):
        with torch.autocast("cuda", torch.bfloat16):
            out = model(torch.randn(batch, 3, 160, 160).cuda())
            loss = F.cross_entropy(out, torch.zeros(batch, dtype=torch.long, device="cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mark()


def resnet(mark: Mark) -> None:
    """ResNet-50 of torchvision, batches of 32 and one of 7."""
    import torchvision

    model = torchvision.models.resnet50().cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in (32, 32, 7, 32):
        with torch.autocast("cuda", torch.bfloat16):
            out = model(torch.randn(batch, 3, 224, 224, device="cuda"))
            loss = F.cross_entropy(out, torch.zeros(batch, dtype=torch.long, device="cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mark()


def _prefetched(steps: int) -> Iterator[torch.Tensor]:
    """Batches copied on a stream of their own, and said to be used on the program's."""
    side = torch.cuda.Stream()
    for step in range(steps):
        with torch.cuda.stream(side):
            images = torch.randn(8 + step, 3, 96, 96).pin_memory().cuda(non_blocking=True)
            images = images.mul(0.5)
        torch.cuda.current_stream().wait_stream(side)
        images.record_stream(torch.cuda.current_stream())
        yield images


def streams(mark: Mark) -> None:
    """A prefetcher on a stream of its own; part of the work on a third."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 96 * 96, 256), nn.ReLU(), nn.Linear(256, 64))
    model.cuda()
    optimizer = torch.optim.Adam(model.parameters())
    other = torch.cuda.Stream()
    for images in _prefetched(5):
        other.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(other):
            kept = model(images).square()
            kept.record_stream(torch.cuda.current_stream())
        torch.cuda.current_stream().wait_stream(other)
        (model(images).sum() + kept.sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
        del images, kept
        mark()
    torch.cuda.empty_cache()


def full(mark: Mark) -> None:
    """Batches of many sizes on a card that is too small for some."""
    model = Gpt(512, 4, 8).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    generator = torch.Generator().manual_seed(1)
    for _ in range(16):
        tokens = int(torch.randint(64, 1000, (), generator=generator))
        with contextlib.suppress(torch.OutOfMemoryError):
            _loss(model, _batch(8, tokens)).backward()
        with contextlib.suppress(torch.OutOfMemoryError):
            optimizer.step()
        optimizer.zero_grad()
        mark()


def sizes(mark: Mark, steps: int = 1500) -> None:
    """Blocks of random sizes, kept for a random while: every way in which they split and join."""
    generator = torch.Generator().manual_seed(2)
    kept: list[torch.Tensor] = []
    side = torch.cuda.Stream()
    for step in range(steps):
        scale = int(torch.randint(6, 26, (), generator=generator))
        nbytes = int(torch.randint(1, 1 << scale, (), generator=generator))
        stream = side if step % 7 == 0 else torch.cuda.default_stream()
        with contextlib.suppress(torch.OutOfMemoryError), torch.cuda.stream(stream):
            kept.append(torch.empty(nbytes, dtype=torch.uint8, device="cuda"))
            if step % 11 == 0:
                kept[-1].record_stream(side)
        while len(kept) > 60:
            del kept[int(torch.randint(0, len(kept), (), generator=generator))]
        if step % 400 == 199:
            torch.cuda.empty_cache()
        if step % 100 == 0:
            mark()


def few(mark: Mark) -> None:
    """The beginning of :func:`sizes`, short enough to be kept in this repository."""
    sizes(mark, 360)


def small(mark: Mark) -> None:
    """A GPT that the CPU plays in a second."""
    model = Gpt(96, 2, 4).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        with torch.autocast("cuda", torch.bfloat16):
            loss = _loss(model, _batch(4, 64))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        mark()


EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


def _example(folder: str, mark: Mark) -> None:
    """Four steps of an example of this repository, from its own folder."""
    path = EXAMPLES / folder
    before = os.getcwd()
    os.chdir(path)
    sys.path.insert(0, str(path))
    try:
        spec = importlib.util.spec_from_file_location("trainer", path / "trainer.py")
        assert spec is not None and spec.loader is not None
        trainer = importlib.util.module_from_spec(spec)
        sys.modules["trainer"] = trainer
        spec.loader.exec_module(trainer)
        for _ in range(4):
            trainer.step()
            mark()
    finally:
        os.chdir(before)


EXAMPLE_NAMES = (
    "nano_gpt",
    *(
        f"{name}/repaired"
        for name in ("eit_p", "energy_flow", "mmgcn", "qc_trainer", "text_recogniser")
    ),
)
TRAININGS: dict[str, Program] = {
    each.__name__: each
    for each in (gpt, accumulation, lengths, convolutions, resnet, streams, full, sizes, few, small)
}
PROGRAMS = {**TRAININGS, **{name: functools.partial(_example, name) for name in EXAMPLE_NAMES}}
