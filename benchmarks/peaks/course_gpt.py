"""A step of a Llama-like model of 24 layers and 1,024 wide, written with einsum as a university course
hands it out: attention, softmax, cross entropy and AdamW by elementary operators.

Five steps to warm up, gradients cleared; then the peak of one step, as the published snapshots of
the allocator hold it.
"""

from __future__ import annotations

import argparse
import math

import torch
from measure import Peaks
from torch import nn

WORDS, WIDTH, LAYERS, HEADS, INNER, BATCH = 10_000, 1024, 24, 16, 4096, 4


class Linear(nn.Module):
    """Without bias."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (..., inputs)."""
        return torch.einsum("...i,oi->...o", x, self.weight)


class Norm(nn.Module):
    """Root mean square norm in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (..., width)."""
        given = x.dtype
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return (self.weight * x).to(given)


class Rotary(nn.Module):
    """Rotates pairs of neighbours by position."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(tokens), 10_000.0 ** -(torch.arange(0, width, 2) / width))
        self.register_buffer("table", torch.stack((angles.cos(), angles.sin())), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (..., tokens, width); the halves of the result are the rotated pairs."""
        pairs = x.reshape(*x.shape[:-1], -1, 2)
        first, second = pairs.permute(-1, *range(pairs.dim() - 1)).unbind(0)
        cosine, sine = self.table[:, : x.shape[-2], :].unbind(0)
        first_turned = cosine * first - sine * second
        second_turned = sine * first + cosine * second
        return torch.concat((first_turned, second_turned), dim=-1)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Over the last dimension, by elementary operators."""
    shifted = x - torch.max(x, dim=-1, keepdim=True)[0]
    powers = torch.exp(shifted)
    return powers / torch.sum(powers, dim=-1, keepdim=True)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """q, k, v (batch, heads, tokens, width of a head), seen (1, tokens, tokens)."""
    scores = torch.einsum("...qd,...kd->...qk", q, k) / math.sqrt(k.shape[-1])
    scores = torch.where(seen, scores, float("-inf"))
    weights = softmax(scores)
    return torch.einsum("...qk,...kd->...qd", weights, v)


class Attention(nn.Module):
    """Causal attention with rotated queries and keys."""

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.query, self.key, self.value = (Linear(WIDTH, WIDTH) for _ in range(3))
        self.out, self.rotary = Linear(WIDTH, WIDTH), rotary

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width)."""
        batch, tokens, _ = x.shape
        q, k, v = self.query(x), self.key(x), self.value(x)
        q, k, v = (part.reshape(batch, tokens, HEADS, -1).permute(0, 2, 1, 3) for part in (q, k, v))
        q = self.rotary(q)
        k = self.rotary(k)
        places = torch.arange(tokens, device=x.device)
        seen = (places.reshape(-1, 1) >= places.reshape(1, -1))[None, ...]
        mixed = attend(q, k, v, seen)
        mixed = mixed.permute(0, 2, 1, 3).reshape(batch, tokens, WIDTH).contiguous()
        return self.out(mixed)


class Gated(nn.Module):
    """silu(a(x)) * c(x), projected back."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = Linear(WIDTH, INNER), Linear(INNER, WIDTH), Linear(WIDTH, INNER)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (..., width)."""
        return self.b(silu(self.a(x)) * self.c(x))


def silu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


class Layer(nn.Module):
    """Attention and the gated MLP, each added to what came in."""

    def __init__(self, rotary: Rotary) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(rotary), Gated()
        self.norm_attention, self.norm_mlp = Norm(), Norm()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width)."""
        attended = self.attention(self.norm_attention(x))
        between = x + attended
        gated = self.mlp(self.norm_mlp(between))
        return between + gated


class Gpt(nn.Module):
    """Embedding, layers, logits."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.empty(WORDS, WIDTH))
        rotary = Rotary(tokens, WIDTH // HEADS)
        self.layers = nn.ModuleList(Layer(rotary) for _ in range(LAYERS))
        self.norm, self.head = Norm(), Linear(WIDTH, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (batch, tokens, words) of indices (batch, tokens)."""
        embedded = self.words[x, :]
        x = embedded
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        return self.head(x)


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    """Over the last dimension, by elementary operators."""
    highest = torch.max(x, dim=-1, keepdim=True)[0]
    x = x - highest
    return x - torch.log(torch.sum(torch.exp(x), dim=-1, keepdim=True))


def cross_entropy(logits: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    """The mean over all positions."""
    negative = -log_softmax(logits)
    return torch.mean(torch.gather(negative, -1, classes.unsqueeze(-1)))


class WrittenAdamW(torch.optim.Optimizer):
    """AdamW one parameter at a time, out of place."""

    def __init__(self, parameters: object) -> None:
        super().__init__(parameters, {"lr": 1e-3, "decay": 0.01})  # type: ignore[arg-type]

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Update each parameter that has a gradient."""
        for group in self.param_groups:
            for p in group["params"]:
                gradient = p.grad.data
                state, rate = self.state[p], group["lr"]
                p.data -= rate * group["decay"] * p.data
                before = state.get("m", torch.zeros_like(gradient))
                before_square = state.get("v", torch.zeros_like(gradient))
                mean = 0.9 * before + ((1 - 0.9) * gradient)
                square = 0.999 * before_square + ((1 - 0.999) * torch.square(gradient))
                p.data -= rate * mean / (torch.sqrt(square) + 1e-8)
                state["m"] = mean
                state["v"] = square


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--autocast", action="store_true", help="bfloat16")
    chosen = parser.parse_args()
    model = Gpt(chosen.tokens).to("cuda")
    optimizer = WrittenAdamW(model.parameters())
    shape = (BATCH, chosen.tokens)
    warm = torch.randint(0, WORDS, (5, *shape), device="cuda")
    measured = torch.randint(0, WORDS, (1, *shape), device="cuda")
    warm_classes = torch.randint(0, WORDS, (5, *shape), device="cuda")
    classes = torch.randint(0, WORDS, (1, *shape), device="cuda")
    peaks = Peaks()
    model.train()
    for step in range(5):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=chosen.autocast):
            output = model(warm[step])
            loss = cross_entropy(output, warm_classes[step])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    del output, loss
    before = torch.cuda.memory_allocated()
    peaks.restart()
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=chosen.autocast):
        output = model(measured[0])
        loss = cross_entropy(output, classes[0])
    loss.backward()
    optimizer.step()
    peaks.tell(before=before, parameters=sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    main()
