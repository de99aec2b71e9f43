"""A step of supervised fine-tuning of Qwen3.5 (text only, bfloat16, SDPA, AdamW without foreach)."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from measure import Peaks
from nf4 import quantize
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

SIZES = {"0.8B": (1024, 3584), "2B": (2048, 6144)}
"""Hidden and intermediate width. The other figures of config.json are the same for both."""


def model_of(size: str) -> Any:
    """The language model on the CPU, of 752,393,024 (0.8B) or 1,881,825,088 (2B) parameters in
    bfloat16.
    """
    hidden, inner = SIZES[size]
    config = Qwen3_5TextConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=24,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=256,
        linear_num_key_heads=16,
        linear_num_value_heads=16,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        vocab_size=248320,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = Qwen3_5ForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.to_empty(device="cpu")
    model.tie_weights()
    model.config.use_cache = False
    return model


def prepared(model: Any, method: str, *, checkpoint: bool) -> Any:
    """With adapters of rank 8 at all linear layers, checkpointing by layer."""
    if method == "lora":
        from peft import LoraConfig, get_peft_model

        adapters = LoraConfig(
            r=8,
            lora_alpha=16,
            lora_dropout=0.0,
            bias="none",
            task_type="CAUSAL_LM",
            target_modules="all-linear",
        )
        model = get_peft_model(model, adapters)
    elif method != "full":
        quantize(model, 8, 16, nested=method == "qlora-nested")
    if checkpoint:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        if method != "full":
            model.enable_input_require_grads()
    return model.train()


def sharded(model: Any, ranks: int) -> Any:
    """As rank 0 of ``ranks`` under FSDP (FULL_SHARD), a unit for each layer, without prefetching.
    This one process stands for all; on the null device the others send what it sends.
    """
    from torch import distributed
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    store = distributed.HashStore()
    distributed.init_process_group("nccl", store=store, rank=0, world_size=ranks)
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy({type(model.model.layers[0])}),
        device_id=torch.device("cuda:0"),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        backward_prefetch=None,
        forward_prefetch=False,
        limit_all_gathers=True,
        use_orig_params=False,
    )


def batch_of(tokens: int) -> dict[str, torch.Tensor]:
    """One sequence; the first half is the prompt, which the loss leaves out."""
    words = torch.randint(100, 248320, (1, tokens))
    labels = words.clone()
    labels[:, : tokens // 2] = -100
    places = torch.arange(tokens).view(1, 1, tokens).expand(3, 1, tokens).clone()
    named = {"input_ids": words, "labels": labels, "position_ids": places}
    return {name: value.to("cuda:0") for name, value in named.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="0.8B")
    parser.add_argument(
        "--method", choices=["full", "lora", "qlora", "qlora-nested"], default="full"
    )
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=1)
    chosen = parser.parse_args()
    model = prepared(model_of(chosen.size), chosen.method, checkpoint=chosen.checkpoint)
    model = sharded(model, chosen.ranks) if chosen.ranks > 1 else model.to("cuda:0")
    batches = [batch_of(chosen.tokens) for _ in range(chosen.accumulate)]
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, foreach=False)
    peaks = Peaks()
    peaks.restart()
    for number, batch in enumerate(batches, start=1):
        outputs = model(**batch, use_cache=False)
        loss = outputs.loss / chosen.accumulate
        peaks.note()
        loss.backward()
        peaks.note()
        if number < chosen.accumulate:
            del outputs, loss
    optimizer.step()
    peaks.tell(trained=sum(parameter.numel() for parameter in trained))


if __name__ == "__main__":
    main()
