"""Training of a GPT-2 of 124 million parameters, with the changes one after the other that a book's
bonus material lists; each ``--change N`` has the first N of them (0: none).

1 mask made at each call, 2 tensor cores, 3 fused AdamW, 4 pinned batches, 5 bfloat16, 6 torch's own
LayerNorm and GELU, 7 scaled_dot_product_attention, 8 torch.compile, 9 vocabulary padded, 10 batch of
32. As there, the loss is also evaluated, and text is generated at the end.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
import torch._inductor.config
from measure import Peaks
from torch import nn

WIDTH, HEADS, LAYERS, TOKENS, DROP = 768, 12, 12, 1024, 0.1


class WrittenNorm(nn.Module):
    """Layer norm by elementary operators."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (..., width) normalized."""
        mean = x.mean(dim=-1, keepdim=True)
        variance = x.var(dim=-1, keepdim=True, unbiased=False)
        normalized = (x - mean) / torch.sqrt(variance + 1e-5)
        return self.scale * normalized + self.shift


class WrittenGelu(nn.Module):
    """GELU's tanh form by elementary operators."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x, element by element."""
        root = torch.sqrt(torch.tensor(2.0 / torch.pi))
        return 0.5 * x * (1 + torch.tanh(root * (x + 0.044715 * torch.pow(x, 3))))


class WrittenAttention(nn.Module):
    """Attention with its matrix of weights; the mask kept in a buffer, or made at each call."""

    def __init__(self, *, kept_mask: bool) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.out, self.dropout = nn.Linear(WIDTH, WIDTH), nn.Dropout(DROP)
        mask = torch.triu(torch.ones(TOKENS, TOKENS), diagonal=1) if kept_mask else None
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width)."""
        batch, tokens, _ = x.shape
        keys, values, queries = self.key(x), self.value(x), self.query(x)
        keys, values, queries = (
            part.view(batch, tokens, HEADS, -1).transpose(1, 2) for part in (keys, values, queries)
        )
        scores = queries @ keys.transpose(2, 3)
        if self.mask is not None:
            future = self.mask.bool()[:tokens, :tokens]
        else:
            future = torch.triu(torch.ones(tokens, tokens, device=x.device), diagonal=1).bool()
        scores.masked_fill_(future, -torch.inf)
        weights = torch.softmax(scores / keys.shape[-1] ** 0.5, dim=-1)
        weights = self.dropout(weights)
        mixed = (weights @ values).transpose(1, 2)
        mixed = mixed.reshape(batch, tokens, WIDTH)
        return self.out(mixed)


class FusedAttention(nn.Module):
    """Attention by torch's own operator."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width)."""
        batch, tokens, _ = x.shape
        parts = self.all(x).view(batch, tokens, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(
            *parts, attn_mask=None, dropout_p=DROP if self.training else 0.0, is_causal=True
        )
        return self.out(mixed.transpose(1, 2).contiguous().view(batch, tokens, WIDTH))


class Block(nn.Module):
    """Attention and MLP, each with dropout and added to what came in."""

    def __init__(self, change: int) -> None:
        super().__init__()
        norm = nn.LayerNorm if change >= 6 else WrittenNorm
        gelu = nn.GELU(approximate="tanh") if change >= 6 else WrittenGelu()
        attention = FusedAttention() if change >= 7 else WrittenAttention(kept_mask=change < 1)
        self.attention, self.dropout = attention, nn.Dropout(DROP)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), gelu, nn.Linear(4 * WIDTH, WIDTH))
        self.norm_attention, self.norm_mlp = norm(WIDTH), norm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width). One name for all that is computed: a second name would keep a
        tensor alive.
        """
        before = x
        x = self.norm_attention(x)
        x = self.attention(x)
        x = self.dropout(x)
        x = x + before
        before = x
        x = self.norm_mlp(x)
        x = self.mlp(x)
        x = self.dropout(x)
        return x + before


class Gpt(nn.Module):
    """Embeddings, blocks, logits by weights of their own."""

    def __init__(self, change: int, vocabulary: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.dropout = nn.Dropout(DROP)
        self.blocks = nn.Sequential(*(Block(change) for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH) if change >= 6 else WrittenNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, tokens, vocabulary) of indices (batch, tokens)."""
        words = self.words(x)
        places = self.places(torch.arange(x.shape[1], device=x.device))
        x = words + places
        x = self.dropout(x)
        x = self.blocks(x)
        x = self.norm(x)
        return self.head(x)


def loss_of(model: Any, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    words, following = (part.to("cuda") for part in batch)
    logits = model(words)
    return nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten())


def evaluate(model: Any, batches: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """The loss of one batch of each kind."""
    model.eval()
    with torch.no_grad():
        for batch in batches:
            loss_of(model, batch).item()
    model.train()


def generate(model: Any, count: int) -> None:
    """``count`` words after a start of four, one at a time."""
    model.eval()
    words = torch.zeros(1, 4, dtype=torch.long).to("cuda")
    with torch.no_grad():
        for _ in range(count):
            logits = model(words)[:, -1, :]
            words = torch.cat((words, logits.argmax(dim=-1, keepdim=True)), dim=1)
    words.squeeze(0).tolist()
    model.train()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--change", type=int, default=0, help="how many of the changes, 0 to 10")
    parser.add_argument("--steps", type=int, default=18)
    parser.add_argument(
        "--pad", action="store_true", help="inductor pads matrix products, else it decides by times"
    )
    chosen = parser.parse_args()
    change = chosen.change
    if change >= 2:
        torch.set_float32_matmul_precision("high")
    vocabulary = 50304 if change >= 9 else 50257
    size = 32 if change >= 10 else 8
    model: Any = Gpt(change, vocabulary)
    if change >= 8:
        torch._inductor.config.force_shape_pad = chosen.pad
        model = torch.compile(model)
    model.to("cuda")
    if change >= 5:
        model.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=5e-4, weight_decay=0.1, fused=True if change >= 3 else None
    )
    words = torch.randint(0, 50257, (size, TOKENS + 1))
    batch = (words[:, :-1].contiguous(), words[:, 1:].contiguous())
    # The validation set of the book's text is shorter than its batches by a remainder.
    held_out = (batch[0][: size - 1], batch[1][: size - 1])
    peaks = Peaks()
    for step in range(chosen.steps):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        optimizer.step()
        if step % 15 == 0:
            evaluate(model, [batch, held_out])
    generate(model, 50)
    peaks.tell(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        allocated_at_end=torch.cuda.memory_allocated(),
        reserved_at_end=torch.cuda.memory_reserved(),
    )


if __name__ == "__main__":
    main()
