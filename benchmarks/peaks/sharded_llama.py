"""Llama 3.1 8B under FSDP2 as rank 0 of many, selective checkpointing by operator, in bfloat16 with
float32 reductions: two steps of AdamW with clipping, batch of 2 x 8,192 tokens.

One process stands for all ranks; on the null device the others send what it sends. It is one of the
largest programs here: 82 GiB on its card, 3 GiB of the host.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from typing import Any

import torch
from measure import Peaks
from torch import distributed, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

WIDTH, LAYERS, HEADS, KEY_HEADS, INNER, WORDS = 4096, 32, 32, 8, 14336, 128256
TOKENS, BATCH, THETA = 8192, 2, 500_000.0


class Norm(nn.Module):
    """Root mean square norm in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (..., width)."""
        wide = x.float()
        normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).type_as(x)
        return normed * self.weight


def turned(q: torch.Tensor, k: torch.Tensor, turns: torch.Tensor) -> list[torch.Tensor]:
    """Both rotated by position, as complex numbers in float32."""
    q_pairs, k_pairs = (
        torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2)) for x in (q, k)
    )
    turns = turns.view(1, TOKENS, 1, -1)
    q_out = torch.view_as_real(q_pairs * turns).flatten(3)
    k_out = torch.view_as_real(k_pairs * turns).flatten(3)
    return [q_out.type_as(q), k_out.type_as(k)]


def spread(x: torch.Tensor) -> torch.Tensor:
    """Each key head (batch, tokens, heads, width) for four query heads, copied."""
    batch, tokens, heads, width = x.shape
    times = HEADS // KEY_HEADS
    x = x.unsqueeze(3).expand(batch, tokens, heads, times, width)
    return x.reshape(batch, tokens, heads * times, width)


class Attention(nn.Module):
    """Causal attention by torch's operator; query heads share key heads."""

    def __init__(self) -> None:
        super().__init__()
        narrow = WIDTH // HEADS * KEY_HEADS
        self.wq, self.wo = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.wk, self.wv = (nn.Linear(WIDTH, narrow, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width)."""
        batch, tokens, _ = x.shape
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        q, k, v = (part.view(batch, tokens, -1, WIDTH // HEADS) for part in (q, k, v))
        q, k = turned(q, k, turns)
        keys, values = spread(k), spread(v)
        q, k, v = (part.transpose(1, 2) for part in (q, keys, values))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = mixed.transpose(1, 2).contiguous()
        return self.wo(mixed.view(batch, tokens, -1))


class Gated(nn.Module):
    """The MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Linear(WIDTH, INNER, bias=False)
        self.w2 = nn.Linear(INNER, WIDTH, bias=False)
        self.w3 = nn.Linear(WIDTH, INNER, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of x (..., width)."""
        return self.w2(nn.functional.silu(self.w1(x)) * self.w3(x))


class Layer(nn.Module):
    """Attention and MLP, each added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(), Gated()
        self.norm_attention, self.norm_mlp = Norm(), Norm()

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """Of x (batch, tokens, width)."""
        between = x + self.attention(self.norm_attention(x), turns)
        return between + self.mlp(self.norm_mlp(between))


class Llama(nn.Module):
    """Embedding, layers, logits."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        half = torch.arange(0, WIDTH // HEADS, 2).float() / (WIDTH // HEADS)
        angles = torch.outer(torch.arange(TOKENS), 1.0 / THETA**half).float()
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))
        self.layers = nn.ModuleDict({str(number): Layer() for number in range(LAYERS)})
        self.norm, self.head = Norm(), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of indices (batch, tokens)."""
        x = self.words(x)
        for layer in self.layers.values():
            x = layer(x, self.turns)
        x = self.norm(x)
        return self.head(x)


KEPT = {
    torch.ops.aten.mm.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops._c10d_functional.reduce_scatter_tensor.default,
    torch.ops.aten.abs.default,
    torch.ops.aten.max.default,
}


def contexts() -> Any:
    """Results of the operators above are kept, those of every second mm are not."""
    products: dict[bool, int] = defaultdict(int)

    def policy(context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        product = operator == torch.ops.aten.mm.default
        products[context.is_recompute] += product
        kept = operator in KEPT and not (product and products[context.is_recompute] % 2 == 0)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def sharded(ranks: int) -> Llama:
    """The model on the device, a shard for each layer and one for the rest."""
    store = distributed.HashStore()
    distributed.init_process_group("nccl", store=store, rank=0, world_size=ranks)
    mesh = init_device_mesh("cuda", (ranks,))
    with torch.device("meta"):
        model = Llama()
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for number, layer in model.layers.items():
        wrapped = checkpoint_wrapper(layer, context_fn=contexts, preserve_rng_state=False)
        model.layers.register_module(number, wrapped)
    for number, layer in model.layers.items():
        again = int(number) < LAYERS - 1
        fully_shard(layer, mesh=mesh, mp_policy=precision, reshard_after_forward=again)
    fully_shard(model, mesh=mesh, mp_policy=precision, reshard_after_forward=True)
    model.to_empty(device="cuda")
    return model.train()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=3)
    chosen = parser.parse_args()
    model = sharded(chosen.ranks)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, foreach=True
    )
    peaks = Peaks()
    for _ in range(chosen.steps):
        words, following = (torch.zeros(BATCH, TOKENS, dtype=torch.long) for _ in range(2))
        words, following = words.to("cuda"), following.to("cuda")
        optimizer.zero_grad()
        logits = model(words)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1).float(), following.flatten(0, 1))
        del logits
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()
    peaks.tell(parameters=sum(math.prod(p.shape) for p in model.parameters()))


if __name__ == "__main__":
    main()
