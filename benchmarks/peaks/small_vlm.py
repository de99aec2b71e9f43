"""Steps of a small model of images and text (nanoVLM, 222 million parameters): a SigLIP encoder, a
projection of its patches and a Llama-like decoder, under bfloat16 autocast, with AdamW.

Two steps of each batch size from 1 to ``--batch``, doubled each time, in one process and with a
new optimizer each; the peak is that of the last. Sequences are 49 places of the image and 79 words.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from measure import Peaks
from torch import nn
from torch.nn import functional

IMAGE, PATCH, IMAGE_WIDTH, IMAGE_HEADS, IMAGE_BLOCKS = 224, 16, 768, 12, 12
WORDS, WIDTH, INNER, HEADS, KEY_HEADS, BLOCKS, TOKENS = 49152, 576, 1536, 9, 3, 30, 79
FOLD = 2
"""Patches of a square of so many are one place of the sequence."""


class Patches(nn.Module):
    """Images as patches with a learned place each."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, IMAGE_WIDTH, PATCH, PATCH)
        self.places = nn.Parameter(torch.empty(1, (IMAGE // PATCH) ** 2, IMAGE_WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, 3, height, width)."""
        x = self.convolution(x)
        x = x.flatten(2).transpose(1, 2)
        return x + self.places


class ImageAttention(nn.Module):
    """Of all patches to all."""

    def __init__(self) -> None:
        super().__init__()
        self.triple = nn.Linear(IMAGE_WIDTH, 3 * IMAGE_WIDTH)
        self.out = nn.Linear(IMAGE_WIDTH, IMAGE_WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, patches, width)."""
        batch, patches, _ = x.shape
        triple = self.triple(x)
        q, k, v = (
            part.view(batch, patches, IMAGE_HEADS, -1).transpose(1, 2)
            for part in triple.split(IMAGE_WIDTH, 2)
        )
        y = functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).contiguous().view(batch, patches, IMAGE_WIDTH))


class ImageBlock(nn.Module):
    """Norms first."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.attention = nn.LayerNorm(IMAGE_WIDTH), ImageAttention()
        self.norm_mlp = nn.LayerNorm(IMAGE_WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(IMAGE_WIDTH, 4 * IMAGE_WIDTH),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * IMAGE_WIDTH, IMAGE_WIDTH),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, patches, width)."""
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class Norm(nn.Module):
    """Root mean square norm in the type that comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (..., width)."""
        scale = torch.rsqrt(torch.mean(x**2, dim=-1, keepdim=True) + 1e-5)
        return x * scale * self.weight


def turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Of x (batch, heads, places, width of a head): its halves rotated by place."""
    first, second = x.chunk(2, dim=-1)
    return (x * cosine[:, None]) + (torch.cat((-second, first), dim=-1) * sine[:, None])


class Attention(nn.Module):
    """Causal and without what is padding; each key head is copied for three query heads."""

    def __init__(self) -> None:
        super().__init__()
        narrow = WIDTH // HEADS * KEY_HEADS
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key, self.value = (nn.Linear(WIDTH, narrow, bias=False) for _ in range(2))
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(
        self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor, seen: torch.Tensor
    ) -> torch.Tensor:
        """Of x (batch, places, width); seen (batch, places) is 1 where a place is no padding."""
        batch, places, _ = x.shape
        q = self.query(x).view(batch, places, HEADS, -1).transpose(1, 2)
        k = self.key(x).view(batch, places, KEY_HEADS, -1).transpose(1, 2)
        v = self.value(x).view(batch, places, KEY_HEADS, -1).transpose(1, 2)
        q, k = turned(q, cosine, sine), turned(k, cosine, sine)
        k = k.repeat_interleave(HEADS // KEY_HEADS, dim=1)
        v = v.repeat_interleave(HEADS // KEY_HEADS, dim=1)
        hidden = (1.0 - seen[:, None, None]) * torch.finfo(q.dtype).min
        # There with is_causal beside the mask, which torch refuses by now; it takes no memory.
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=hidden)
        return self.out(y.transpose(1, 2).contiguous().view(batch, places, WIDTH))


class Gated(nn.Module):
    """The MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (..., width)."""
        gate = functional.silu(self.gate(x))
        x = self.up(x)
        return self.down(gate * x)


class Block(nn.Module):
    """Attention and MLP, each added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp, self.attention = Gated(), Attention()
        self.norm_attention, self.norm_mlp = Norm(), Norm()

    def forward(self, x: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
        """Of x (batch, places, width)."""
        x = x + self.attention(self.norm_attention(x), *more)
        return x + self.mlp(self.norm_mlp(x))


class Decoder(nn.Module):
    """From embedded places to normalized ones; the logits are by the embedding's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        frequency = 1.0 / (100_000 ** (torch.arange(0, WIDTH // HEADS, 2).float() * HEADS / WIDTH))
        self.register_buffer("frequency", frequency)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.head = Norm(), nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    @torch.no_grad()
    def turns(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine (batch, places, width of a head) of x (batch, places, ...)."""
        at = torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1)
        angles = at.reshape(-1).float()[:, None] * self.frequency[None]
        angles = angles.reshape(*x.shape[:2], -1)
        angles = torch.cat((angles, angles), dim=-1)
        return torch.cos(angles) * 1.0, torch.sin(angles) * 1.0

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """Of x (batch, places, width)."""
        cosine, sine = self.turns(x)
        for block in self.blocks:
            x = block(x, cosine, sine, seen)
        return self.norm(x)


class Model(nn.Module):
    """Encoder, decoder and the projection between them."""

    def __init__(self) -> None:
        super().__init__()
        blocks = (ImageBlock() for _ in range(IMAGE_BLOCKS))
        norm = nn.LayerNorm(IMAGE_WIDTH)
        self.encoder = nn.Sequential(Patches(), nn.Sequential(*blocks), norm)
        self.decoder = Decoder()
        self.projection = nn.Linear(IMAGE_WIDTH * FOLD**2, WIDTH, bias=False)

    def folded(self, x: torch.Tensor) -> torch.Tensor:
        """Patches x (batch, patches, width), a square of them at a place."""
        side = IMAGE // PATCH // FOLD
        x = x.view(-1, side, FOLD, side, FOLD, IMAGE_WIDTH)
        x = x.permute(0, 1, 3, 2, 4, 5).contiguous()
        return x.reshape(-1, side**2, IMAGE_WIDTH * FOLD**2)

    def forward(
        self, words: torch.Tensor, images: torch.Tensor, seen: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the words and their loss."""
        pictured = self.encoder(images)
        pictured = self.projection(self.folded(pictured))
        named = self.decoder.words(words)
        joined = torch.cat((pictured, named), dim=1)
        always = torch.ones(pictured.shape[:2], device=seen.device, dtype=seen.dtype)
        seen = torch.cat((always, seen), dim=1)
        logits = self.decoder(joined, seen)
        logits = self.decoder.head(logits)
        logits = logits[:, pictured.shape[1] :, :]
        loss = functional.cross_entropy(
            logits.reshape(-1, WORDS), labels.reshape(-1), ignore_index=-100
        )
        return logits, loss


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument(
        "--hold", action="store_true", help="the logits of the size before, as locals() does there"
    )
    chosen = parser.parse_args()
    model = Model().to("cuda")
    loaded, peaks, size = torch.cuda.memory_allocated(), Peaks(), 1
    logits: Any = None
    each: dict[int, int] = {}
    held: list[Any] = []
    while size <= chosen.batch:
        peaks.restart()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
        for _ in range(2):
            images = torch.zeros(size, 3, IMAGE, IMAGE).to("cuda")
            words, labels, seen = (
                torch.ones(size, TOKENS, dtype=torch.long).to("cuda") for _ in range(3)
            )
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                logits, loss = model(words, images, seen, labels)
            loss.backward()
            optimizer.step()
        peaks.note()
        each[size] = peaks.allocated
        del optimizer, loss, images, words, labels, seen
        torch.cuda.empty_cache()
        held[:] = [logits] if chosen.hold else []
        size *= 2
    peaks.tell(loaded=loaded, kept=logits.numel(), each=each)


if __name__ == "__main__":
    main()
