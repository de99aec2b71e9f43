"""Steps of minGPT's character model (`chargpt`, gpt-mini): 6 layers of 6 heads, 192 wide, attention
written out (with --fused by scaled_dot_product_attention), dropout everywhere, cross entropy, AdamW
with and without decay, gradients clipped.
"""

from __future__ import annotations

import math
import sys

import torch
from measure import Peaks
from torch import nn

WORDS, WIDTH, LAYERS, HEADS, TOKENS, BATCH, DROPPED = 65, 192, 6, 6, 128, 64, 0.1


class NewGELU(nn.Module):
    """The approximation by tanh, written out."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x of any shape."""
        return (
            0.5
            * x
            * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
        )


class Attention(nn.Module):
    """Causal, with its weights as a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.triple, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop_weights, self.drop = nn.Dropout(DROPPED), nn.Dropout(DROPPED)
        mask = torch.tril(torch.ones(TOKENS, TOKENS)).view(1, 1, TOKENS, TOKENS)
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width)."""
        batch, tokens, width = x.size()
        q, k, v = (
            part.view(batch, tokens, HEADS, width // HEADS).transpose(1, 2)
            for part in self.triple(x).split(width, dim=2)
        )
        if "--fused" in sys.argv:
            attend = nn.functional.scaled_dot_product_attention
            y = attend(q, k, v, None, DROPPED, True)
            y = y.transpose(1, 2).contiguous().view(batch, tokens, width)
            return self.drop(self.out(y))
        weights = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        weights = weights.masked_fill(self.mask[:, :, :tokens, :tokens] == 0, float("-inf"))
        weights = self.drop_weights(weights.softmax(dim=-1))
        y = (weights @ v).transpose(1, 2).contiguous().view(batch, tokens, width)
        return self.drop(self.out(y))


class Block(nn.Module):
    """Norms first."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = Attention()
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.activation, self.drop = NewGELU(), nn.Dropout(DROPPED)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width)."""
        x = x + self.attention(self.norms[0](x))
        return x + self.drop(self.narrow(self.activation(self.widen(self.norms[1](x)))))


class CharGPT(nn.Module):
    """Logits of the next character."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.drop = nn.Dropout(DROPPED)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens)."""
        at = torch.arange(x.size(1), device=x.device).unsqueeze(0)
        x = self.drop(self.words(x) + self.places(at))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def main() -> None:
    model = CharGPT().to("cuda")
    decayed = [each for each in model.parameters() if each.dim() > 1]
    others = [each for each in model.parameters() if each.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=5e-4, betas=(0.9, 0.95))
    peaks = Peaks()
    for _ in range(4):
        x, y = (torch.randint(WORDS, (BATCH, TOKENS)).to("cuda") for _ in range(2))
        logits = model(x)
        loss = nn.functional.cross_entropy(logits.view(-1, WORDS), y.view(-1), ignore_index=-1)
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    peaks.tell()


if __name__ == "__main__":
    main()
