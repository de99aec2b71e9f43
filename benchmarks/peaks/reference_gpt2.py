"""Ten steps of llm.c's reference GPT-2 (124 million parameters) on one batch of 4 x 64 words in
float32: attention with its matrix of weights, logits by the embedding's weights, fused Adam.

As there, one forward and backward, of which the logits are kept, is before the steps, and not
counted.
"""

from __future__ import annotations

import math

import torch
from char_gpt import NewGELU
from measure import Peaks
from torch import nn

WORDS, PLACES, WIDTH, LAYERS, HEADS, TOKENS, BATCH = 50257, 1024, 768, 12, 12, 64, 4


class Attention(nn.Module):
    """Causal, with its weights as a matrix; the mask is of all places."""

    def __init__(self) -> None:
        super().__init__()
        self.triple, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.tril(torch.ones(PLACES, PLACES))[None, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width)."""
        batch, tokens, _ = x.shape
        triple = self.triple(x)
        q, k, v = (
            part.view(batch, tokens, HEADS, -1).transpose(1, 2) for part in triple.split(WIDTH, 2)
        )
        weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.shape[-1]))
        weights = weights.masked_fill(self.mask[:, :, :tokens, :tokens] == 0, -math.inf)
        weights = weights.softmax(dim=-1)
        mixed = weights @ v
        return self.out(mixed.transpose(1, 2).contiguous().view(batch, tokens, WIDTH))


class Block(nn.Module):
    """Norms first."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm_mlp = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), NewGELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width)."""
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class Gpt(nn.Module):
    """Logits by the weights of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(PLACES, WIDTH)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.words.weight = self.head.weight

    def forward(
        self, x: torch.Tensor, following: torch.Tensor, *, keep: bool
    ) -> tuple[torch.Tensor | None, torch.Tensor]:
        """Logits, if they are kept, and the loss of x (batch, tokens)."""
        words = self.words(x)
        places = self.places(torch.arange(x.shape[1], device=x.device))
        x = words + places
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        logits = self.head(x)
        loss = nn.functional.cross_entropy(logits.view(-1, WORDS), following.view(-1))
        return logits if keep else None, loss


def main() -> None:
    model = Gpt().to("cuda")
    x, following = (torch.randint(WORDS, (BATCH, TOKENS)).to("cuda") for _ in range(2))
    logits, loss = model(x, following, keep=True)
    loss.backward()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    peaks = Peaks()
    peaks.restart()
    for _ in range(10):
        _, loss = model(x, following, keep=False)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    peaks.tell(parameters=sum(p.numel() for p in model.parameters()), kept=logits.numel())


if __name__ == "__main__":
    main()
