"""Steps of Mistral 7B on packed sequences of 4,096 words, as transformers' trainer takes them: all in
bfloat16, each layer checkpointed, logits and their loss in float32, gradients clipped, AdamW with
and without decay. Trained is all of it, or adapters (LoRA) in float32 at the four products of
attention; one process, or rank 0 of ``--ranks`` under FSDP.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from measure import Peaks
from torch import distributed, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

WIDTH, LAYERS, HEADS, KEY_HEADS, INNER, WORDS, TOKENS = 4096, 32, 32, 8, 14336, 32000, 4096
RANK, DROPPED = 16, 0.1


class Norm(nn.Module):
    """Root mean square norm in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (..., width)."""
        given = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * x.to(given)


class Adapted(nn.Module):
    """A frozen linear map with an adapter beside it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.drop = base, nn.Dropout(DROPPED)
        self.into = nn.Linear(base.in_features, RANK, bias=False, dtype=torch.float32)
        self.out = nn.Linear(RANK, base.out_features, bias=False, dtype=torch.float32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (..., inputs)."""
        y = self.base(x)
        given = y.dtype
        x = x.to(torch.float32)
        y = y + self.out(self.into(self.drop(x))) * 1.0
        return y.to(given)


def turned(x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Of x (batch, heads, tokens, width of a head): its halves rotated by position."""
    first, second = x.chunk(2, dim=-1)
    return (x * cosine) + (torch.cat((-second, first), dim=-1) * sine)


class Layer(nn.Module):
    """Attention and the gated MLP, each added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        narrow = WIDTH // HEADS * KEY_HEADS
        self.q, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDTH, narrow, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = nn.Linear(INNER, WIDTH, bias=False)
        self.norm_attention, self.norm_mlp = Norm(), Norm()

    def attend(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width)."""
        batch, tokens, _ = x.shape
        q, k, v = (
            product(x).view(batch, tokens, -1, WIDTH // HEADS).transpose(1, 2)
            for product in (self.q, self.k, self.v)
        )
        q, k = turned(q, cosine, sine), turned(k, cosine, sine)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(batch, tokens, -1))

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width)."""
        before = x
        x = self.norm_attention(x)
        x = self.attend(x, cosine, sine)
        x = before + x
        before = x
        x = self.norm_mlp(x)
        x = self.down(functional.silu(self.gate(x)) * self.up(x))
        return before + x


class Mistral(nn.Module):
    """Embedding, layers, logits."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm, self.head = Norm(), nn.Linear(WIDTH, WORDS, bias=False)

    def turns(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine (1, tokens, width of a head) in the type of x (batch, tokens, width)."""
        half = torch.arange(0, WIDTH // HEADS, 2, device=x.device) / (WIDTH // HEADS)
        angles = torch.outer(torch.arange(x.shape[1], device=x.device), 10_000.0**-half)[None]
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def forward(self, words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of words (batch, tokens), and the last hidden states."""
        x = self.words(words)
        if not self.words.weight.requires_grad:
            x.requires_grad_()
        cosine, sine = self.turns(x)
        for layer in self.layers:
            x = checkpoint(layer, x, cosine, sine, use_reentrant=True)
        x = self.norm(x)
        return self.head(x), x


def loss_of(model: Any, words: torch.Tensor, labels: torch.Tensor, *, keep: bool) -> torch.Tensor:
    """The loss of the next word, in float32. The logits are let go of with the call, as are the last
    hidden states if they are to be kept.
    """
    logits, last = model(words)
    if not keep:
        del last
    wide = logits.float()
    ahead = wide[..., :-1, :].contiguous().view(-1, WORDS)
    return functional.cross_entropy(ahead, labels[..., 1:].contiguous().view(-1))


def adapt(model: Mistral) -> None:
    """Freeze the model and put adapters at queries, keys, values and outputs."""
    model.requires_grad_(requires_grad=False)
    for layer in model.layers:
        for name in ("q", "k", "v", "o"):
            setattr(layer, name, Adapted(getattr(layer, name)))


def sharded(model: Mistral, ranks: int) -> Any:
    """As rank 0 of ``ranks`` under FSDP (FULL_SHARD), a unit for each layer. This one process stands
    for all; on the null device the others send what it sends.
    """
    from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    store = distributed.HashStore()
    distributed.init_process_group("nccl", store=store, rank=0, world_size=ranks)
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({Layer}),
        device_id=torch.device("cuda:0"),
        backward_prefetch=BackwardPrefetch.BACKWARD_PRE,
        limit_all_gathers=True,
        use_orig_params=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument(
        "--trainer",
        action="store_true",
        help="tensors live as long as they do in transformers: the last hidden states until the "
        "loss is known, what the forward built no longer than the backward",
    )
    chosen = parser.parse_args()
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model: Any = Mistral()
        if chosen.lora:
            adapt(model)
    torch.set_default_dtype(torch.float32)
    if chosen.ranks > 1:
        model = sharded(model.to_empty(device="cpu"), chosen.ranks)
    else:
        model.to_empty(device="cuda")
    trained = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for n, p in model.named_parameters() if p.requires_grad and "norm" not in n]
    others = [p for n, p in model.named_parameters() if p.requires_grad and "norm" in n]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=2e-5, eps=1e-4)
    peaks = Peaks()
    model.train()
    for _ in range(3):
        shape = (chosen.batch, TOKENS)
        words, labels, _seen = (torch.ones(shape, dtype=torch.long).to("cuda") for _ in range(3))
        loss = loss_of(model, words, labels, keep=chosen.trainer)
        loss.backward()
        if chosen.trainer:
            loss = loss.detach()
        if chosen.ranks > 1:
            model.clip_grad_norm_(1.0)
        else:
            nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        model.zero_grad()
    peaks.tell(trained=sum(p.numel() for p in trained), after=torch.cuda.memory_allocated())


if __name__ == "__main__":
    main()
