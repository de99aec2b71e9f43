"""Peaks that others measured on real GPUs, each with where it stands and the program of this folder
that takes the same steps.
"""

from __future__ import annotations

from dataclasses import dataclass

GIB, MIB, GB = 1 << 30, 1 << 20, 1_000_000_000
_FAKEGPU_PAGES = "https://github.com/FanBB2333/FakeGPU/blob/7d5cf83/docs"
FAKEGPU = f"{_FAKEGPU_PAGES}/llm-sft-memory-estimation.md"
TITAN = (
    "https://github.com/pytorch/torchtitan/blob/main/benchmarks/llama3_h100_202412_torchtitan.md"
)
BOOK = "https://github.com/rasbt/LLMs-from-scratch/blob/main/ch05/10_llm-training-speed/README.md"
LIGER = "https://github.com/linkedin/Liger-Kernel/blob/main/benchmark/data/all_benchmark_data.csv"


@dataclass(frozen=True)
class Published:
    """One measured peak."""

    what: str
    """The program in words."""
    program: tuple[str, ...]
    """A module of this folder and its arguments."""
    gpu: str
    """Where it was measured: a key of ``auditor.model.gpus``."""
    measured: str
    """Which of the program's figures it is: ``allocated``, ``reserved``."""
    value: float
    """In ``unit``, as printed there."""
    unit: int
    """Bytes: ``GIB``, ``MIB`` or ``GB``."""
    torch: str
    """Version of torch there, "" where it is not said."""
    link: str
    ranks: int = 1
    """Processes there; one stands for all here."""
    memory_gib: float = 0.0
    """Of a card that has another memory than the model's; 0: it has not."""
    small: bool = False
    """Whether a rehearsal, which computes all values on the CPU, is done in minutes."""

    @property
    def printed(self) -> str:
        """The figure as it stands there, of a long one ten digits."""
        text = repr(self.value)
        return text if len(text) <= 10 else f"{self.value:.10g}"

    @property
    def bytes(self) -> float:
        """The figure in bytes."""
        return self.value * self.unit


def _qwen(  # one row of FakeGPU's tables
    size: str,
    method: str,
    tokens: int,
    gib: float,
    *,
    checkpoint: bool = False,
    accumulate: int = 1,
    gpu: str = "RTX-PRO-5000",
    torch: str = "2.8.0",
) -> Published:
    names = {"full": "full", "lora": "LoRA", "qlora": "QLoRA", "qlora-nested": "QLoRA, nested"}
    what = f"Qwen3.5-{size} {names[method]}, {tokens} tokens"
    what += ", checkpointing" * checkpoint + f", {accumulate} batches a step" * (accumulate > 1)
    arguments = ["--size", size, "--method", method, "--tokens", str(tokens)]
    arguments += ["--checkpoint"] * checkpoint + ["--accumulate", str(accumulate)]
    program = ("qwen35.py", *arguments)
    small = gpu == "RTX3090Ti" and tokens == 16
    return Published(what, program, gpu, "allocated", gib, GIB, torch, FAKEGPU, small=small)


def _on_3090(method: str, tokens: int, gib: float, *, checkpoint: bool = False) -> Published:
    return _qwen(
        "0.8B", method, tokens, gib, checkpoint=checkpoint, gpu="RTX3090Ti", torch="2.12.1"
    )


QWEN = (
    _qwen("0.8B", "full", 16, 6.626, accumulate=2),
    _qwen("0.8B", "full", 128, 6.687),
    _qwen("0.8B", "full", 128, 6.679, checkpoint=True),
    _qwen("0.8B", "lora", 16, 1.756),
    _qwen("0.8B", "lora", 128, 2.696),
    _qwen("0.8B", "lora", 128, 1.876, checkpoint=True),
    _qwen("2B", "full", 16, 15.939, accumulate=2),
    _qwen("2B", "lora", 16, 3.868),
    _qwen("2B", "lora", 128, 4.959),
    _qwen("2B", "lora", 128, 3.974, checkpoint=True),
    _qwen("0.8B", "qlora", 16, 1.072),
    _qwen("0.8B", "qlora", 128, 2.007),
    _qwen("0.8B", "qlora", 128, 1.192, checkpoint=True),
    _qwen("2B", "qlora", 16, 2.039),
    _qwen("2B", "qlora", 128, 2.136, checkpoint=True),
    _qwen("0.8B", "qlora-nested", 16, 1.051),
    _qwen("0.8B", "qlora-nested", 128, 1.986),
    _qwen("0.8B", "qlora-nested", 128, 1.171, checkpoint=True),
    _qwen("2B", "qlora-nested", 16, 1.979),
    _qwen("2B", "qlora-nested", 128, 2.077, checkpoint=True),
    _on_3090("full", 16, 6.630),
    _on_3090("lora", 128, 1.876, checkpoint=True),
    _on_3090("qlora-nested", 16, 1.051),
    _on_3090("qlora-nested", 128, 1.171, checkpoint=True),
)


def _fsdp(tokens: int, gib: float, gpu: str, torch: str) -> Published:
    what = f"Qwen3.5-0.8B full, FSDP over 2, {tokens} tokens"
    program = ("qwen35.py", "--tokens", str(tokens), "--ranks", "2")
    return Published(what, program, gpu, "allocated", gib, GIB, torch, FAKEGPU, ranks=2)


SHARDED = (
    _fsdp(16, 3.308, "RTX-PRO-5000", "2.8.0"),
    _fsdp(16, 3.308, "RTX3090Ti", "2.12.1"),
    _fsdp(128, 3.357, "RTX-PRO-5000", "2.8.0"),
    _fsdp(128, 3.357, "RTX3090Ti", "2.12.1"),
)


def _titan(ranks: int, gib: float) -> Published:
    """There with torch of 2024-12-23, on H100s of 96 GB; the release after it was 2.6.0."""
    what = f"Llama 3.1 8B, FSDP2 over {ranks}, 2 x 8,192 tokens, selective checkpointing"
    program = ("sharded_llama.py", "--ranks", str(ranks))
    return Published(
        what, program, "H100", "reserved", gib, GIB, "2.6.0", TITAN, ranks=ranks, memory_gib=95.0
    )


TITANS = (_titan(8, 82.4), _titan(128, 67.0))

_CHANGES = (
    (0, "as the book has it, fp32", 26.2617),
    (1, "+ mask made at each call", 26.2422),
    (2, "+ TF32", 26.2422),
    (3, "+ fused AdamW", 26.2422),
    (5, "+ bf16", 13.7871),
    (6, "+ torch's LayerNorm and GELU", 11.5645),
    (7, "+ scaled_dot_product_attention", 5.9004),
    (8, "+ torch.compile", 6.1875),
    (9, "+ vocabulary padded to 50,304", 5.8906),
    (10, "+ batch of 32 (was 8)", 22.5078),
)


def _book(change: int, what: str, gib: float) -> Published:
    program = ("book_gpt.py", "--change", str(change))
    return Published(
        f"GPT-2 124M, {what}", program, "A100-80GB", "reserved", gib, GIB, "2.6.0", BOOK
    )


def _liger(what: str, name: str, size: int, mib: float, gpu: str = "A100-80GB") -> Published:
    program = ("layers.py", name, str(size))
    small = name in {"layer-norm", "cross-entropy"} and size < 10_000
    return Published(f"{what} {size:,}", program, gpu, "median", mib, MIB, "", LIGER, small=small)


LAYERS = (
    _liger("SwiGLU MLP of Llama, tokens", "swiglu", 1024, 1294.25),
    _liger("SwiGLU MLP of Llama, tokens", "swiglu", 8192, 6372.25),
    _liger("GEGLU MLP, tokens", "geglu", 2048, 3452.25),
    _liger("SwiGLU MLP 2048/4096, tokens", "small-swiglu", 4096, 688.25, "RTX4090"),
    _liger("Cross entropy, classes", "cross-entropy", 4096, 1280.1259765625),
    _liger("Cross entropy, classes", "cross-entropy", 65536, 20480.125),
    _liger("Logits and cross entropy, rows", "head-and-loss", 4096, 6092.2822265625),
    _liger("Logits and cross entropy, rows", "head-and-loss", 16384, 15302.3759765625),
    _liger("LayerNorm, width", "layer-norm", 4096, 320.15625),
    _liger("LayerNorm, width", "layer-norm", 4096, 320.15625, "H100"),
)

COURSE = (
    "https://github.com/Wedsonlin/assignment2-systems/blob/8630bcfe2d/results/"
    "medium_{}_training_memory_snapshot.pickle"
)


def _course(tokens: int, measured: str, mib: float, *, autocast: bool) -> Published:
    """Of a snapshot of the allocator: what it ends with, and its history backwards from there. That
    512 and 1,024 tokens ran under autocast is said by the stacks in it. The GPU is not said; its
    cuBLAS workspaces of 8.1 MiB are not those of Hopper or Blackwell.
    """
    what = f"Course GPT 423M, 4 x {tokens} tokens, {'bf16 autocast' if autocast else 'fp32'}"
    program = ("course_gpt.py", "--tokens", str(tokens), *["--autocast"] * autocast)
    link = COURSE.format(tokens)
    small = tokens == 128
    return Published(what, program, "A100-80GB", measured, mib, MIB, "2.11.0", link, small=small)


COURSES = (
    _course(128, "allocated", 6696.41, autocast=False),
    _course(128, "reserved", 6900, autocast=False),
    _course(256, "allocated", 8690.25, autocast=False),
    _course(256, "reserved", 8836, autocast=False),
    _course(512, "allocated", 11859.40, autocast=True),
    _course(512, "reserved", 12074, autocast=True),
    _course(1024, "allocated", 23089.50, autocast=True),
    _course(1024, "reserved", 24012, autocast=True),
)

CHARACTERS = Published(
    "minGPT chargpt 2.7M, 64 x 128 characters, fp32",
    ("char_gpt.py",),
    "A100-80GB",
    "allocated",
    1_533_101_056 / MIB,
    MIB,
    "",
    "https://github.com/ProfineAI/profine-cli/tree/main/examples/minGPT",
    small=True,
)

# The rows from here on were named, with their configuration and figure, before any of them ran.

_FMS = "https://github.com/foundation-model-stack/fms-acceleration/blob/24bdadb/scripts/benchmarks"


def _mistral(what: str, batch: int, printed_bytes: int, *more: str, ranks: int = 1) -> Published:
    return Published(
        f"Mistral 7B {what}, {batch} x 4,096 tokens, checkpointing",
        ("mistral.py", "--batch", str(batch), *more),
        "A100-80GB",
        "allocated",
        printed_bytes / MIB,
        MIB,
        "2.4.1",
        f"{_FMS}/refs/a100_80gb.csv",
        ranks=ranks,
    )


MISTRALS = (
    _mistral("full", 4, 72_434_837_504),
    _mistral("full, FSDP over 2", 2, 36_225_939_968, "--ranks", "2", ranks=2),
    _mistral("LoRA", 4, 26_704_571_904, "--lora"),
    _mistral("LoRA", 8, 38_742_912_512, "--lora"),
)


def _vision(gb: float, precision: str, batch: int, *more: str, what: str = "") -> Published:
    """There with a nightly of 2023-06-23, which 2.1.0 is not like (``vit_finetuning.py``)."""
    return Published(
        f"ViT-L/16, batch of {batch}, {precision}{what}",
        ("vit_finetuning.py", "--batch", str(batch), "--precision", precision, *more),
        "A100-80GB",
        "reserved",
        gb,
        GB,
        "2.1.0.dev",
        "https://github.com/rasbt/pytorch-memory-optim/blob/f6eddcd/logs.md",
    )


VISIONS = (
    _vision(26.79, "32", 64),
    _vision(18.21, "16-mixed", 64),
    _vision(13.82, "bf16-true", 64),
    _vision(5.69, "bf16-true", 16),
    _vision(3.91, "bf16-true", 4, "--accumulate", "4", what=", 4 batches a step"),
    _vision(
        2.02,
        "bf16-true",
        4,
        *("--accumulate", "4", "--optimizer", "SGD"),
        what=", 4 batches a step, SGD",
    ),
)


def _vlm(batch: int, mib: float) -> Published:
    return Published(
        f"nanoVLM 222M, batch of {batch}, bf16 autocast",
        ("small_vlm.py", "--batch", str(batch)),
        "H100",
        "allocated",
        mib,
        MIB,
        "",
        "https://github.com/huggingface/nanoVLM/blob/1eed257/README.md",
    )


VLMS = (_vlm(1, 4439.02), _vlm(16, 6989.32), _vlm(64, 18584.00), _vlm(256, 64944.37))

GIANT = Published(
    "DINOv2 giant 1.1B, batch of 32, bf16, checkpointing, fused AdamW",
    ("giant_vit.py",),
    "RTX4090",  # a 4070 Ti SUPER there, of the same architecture
    "allocated",
    9.82,
    GB,
    "2.4.0",
    "https://github.com/pytorch/ao/blob/072500a/torchao/optim/README.md",
    memory_gib=15.7,
)

REFERENCE = Published(
    "llm.c's reference GPT-2 124M, 4 x 64 tokens, fp32",
    ("reference_gpt2.py",),
    "RTX4090",
    "allocated",
    2392,
    MIB,
    "2.3.0",
    "https://zhuanlan.zhihu.com/p/694416583",
    small=True,
)

PUBLISHED = (
    *QWEN,
    *SHARDED,
    *TITANS,
    *(_book(*change) for change in _CHANGES),
    *COURSES,
    *LAYERS,
    CHARACTERS,
    *MISTRALS,
    *VISIONS,
    *VLMS,
    GIANT,
    REFERENCE,
)
