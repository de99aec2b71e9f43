"""Checkpoints as trainers save them: none of them may be called bad. Each function returns what is
saved.
"""

from __future__ import annotations

import argparse
import datetime as dt
import io
import random
import struct
import warnings
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from torch import nn

Content = Callable[[], Any]


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4))


def _trained(optimizer: str = "AdamW", **more: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = _model()
    made = getattr(torch.optim, optimizer)(model.parameters(), lr=0.01, **more)
    for _ in range(2):
        made.zero_grad()
        model(torch.arange(6)).square().mean().backward()
        made.step()
    return model, made


def state_dict() -> Any:
    return _model().state_dict()


def half_precision() -> Any:
    return {name: tensor.to(torch.bfloat16) for name, tensor in _model().state_dict().items()}


def whole_trainer() -> Any:
    model, optimizer = _trained()
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)
    scaler = {
        "scale": 65536.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 2000,
        "_growth_tracker": 3,
    }
    parts = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": schedule.state_dict(),
    }
    return {
        **parts,
        "scaler": scaler,
        "epoch": 3,
        "global_step": 90,
        "rng": torch.get_rng_state(),
        "best": float("inf"),
    }


def optimizers() -> Any:
    names = (
        "SGD",
        "Adam",
        "Adagrad",
        "RMSprop",
        "Adadelta",
        "NAdam",
        "RAdam",
        "Rprop",
        "Adamax",
        "ASGD",
    )
    return {name: _trained(name)[1].state_dict() for name in names}


def schedulers() -> Any:
    optimizer, rates = _trained("SGD", momentum=0.9)[1], torch.optim.lr_scheduler
    made = [
        rates.CosineAnnealingLR(optimizer, 10),
        rates.StepLR(optimizer, 3),
        rates.MultiStepLR(optimizer, [1, 5]),  # keeps a Counter
        rates.ReduceLROnPlateau(optimizer),
        rates.LambdaLR(optimizer, lambda step: 0.9**step),
        rates.CosineAnnealingWarmRestarts(optimizer, 4),
        rates.SequentialLR(
            optimizer, [rates.LinearLR(optimizer), rates.ExponentialLR(optimizer, 0.9)], [2]
        ),
    ]
    return [each.state_dict() for each in made]


def lightning() -> Any:
    model, optimizer = _trained()
    loops = {
        "fit_loop": {"state_dict": {}, "epoch_progress": {"total": {"ready": 1, "completed": 1}}}
    }
    kept = {
        "ModelCheckpoint{'monitor': None}": {
            "best_model_score": torch.tensor(0.5),
            "dirpath": "runs",
        }
    }
    return {
        "epoch": 1,
        "global_step": 20,
        "pytorch-lightning_version": "2.4.0",
        "state_dict": OrderedDict(
            (f"model.{name}", tensor) for name, tensor in model.state_dict().items()
        ),
        "loops": loops,
        "callbacks": kept,
        "optimizer_states": [optimizer.state_dict()],
        "lr_schedulers": [{"last_epoch": 20, "base_lrs": [0.01], "_last_lr": [0.009]}],
        "hparams_name": "kwargs",
        "hyper_parameters": {"lr": 0.01, "layers": [8, 8], "path": "data"},
    }


def hugging_face_rng() -> Any:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # what the Trainer saves
        "cpu": torch.random.get_rng_state(),
        "cuda": [torch.random.get_rng_state()],
    }


def numpy_values() -> Any:
    generator = np.random.default_rng(0)
    values = {
        "loss": np.float64(0.5),
        "steps": np.int64(7),
        "history": np.ones((3, 2), np.float32),
        "ok": np.bool_(True),
    }
    return {
        **values,
        "generator": generator.bit_generator.state,
        "dtype": np.dtype("f4"),
        "model": state_dict(),
    }


def numpy_generator() -> Any:
    return {"rng": np.random.default_rng(0), "state": state_dict()}


def options_and_paths() -> Any:
    args = argparse.Namespace(
        lr=0.1, out=PurePosixPath("runs/a"), layers=[1, 2], since=dt.timedelta(seconds=3)
    )
    return {"args": args, "model": state_dict(), "when": dt.datetime(2026, 1, 2, 3, 4)}


def plain_containers() -> Any:
    more = {
        "a": (1, 2.5, None, True),
        "b": {"x", "y"},
        "c": b"bytes",
        "d": bytearray(b"more"),
        "e": 1 + 2j,
        3: -(2**70),
    }
    kept = {
        "deque": deque([1.0, 2.0], maxlen=10),
        "counts": Counter("abca"),
        "lists": defaultdict(list, {1: [2]}),
    }
    return {
        **more,
        **kept,
        "tuple as a key": {(0, "a"): torch.ones(2)},
        "version": torch.__version__,
    }


def tied_and_shared() -> Any:
    weight = torch.randn(8, 8)
    return {
        "embed": weight,
        "head": weight,
        "row": weight[3],
        "turned": weight.t(),
        "empty": weight[:0],
        "number": weight[0, 0],
    }


def parameters_and_buffers() -> Any:
    module = nn.BatchNorm1d(4)
    return {
        "p": nn.Parameter(torch.ones(3)),
        "list": list(module.parameters()),
        "state": module.state_dict(),
        "mask": torch.ones(3) > 0,
    }


def all_dtypes() -> Any:
    names = (
        "float64",
        "float32",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
        "complex64",
        "complex128",
    )
    new = (
        "uint16",
        "uint32",
        "uint64",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
    )
    return {name: torch.ones(4).to(getattr(torch, name)) for name in (*names, *new)}


def dtypes_devices_sizes() -> Any:
    return {
        "dtype": torch.bfloat16,
        "device": torch.device("cuda:0"),
        "shape": torch.ones(2, 3).shape,
        "storage": torch.FloatStorage([1.0, 2.0]),
    }


def quantized() -> Any:
    each = torch.quantize_per_channel(
        torch.randn(4, 3), torch.ones(4), torch.zeros(4, dtype=torch.long), 0, torch.qint8
    )
    return {
        "tensor": torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.quint8),
        "channel": each,
    }


def sparse() -> Any:
    dense = torch.eye(4)
    return {"coo": dense.to_sparse(), "csr": dense.to_sparse_csr(), "model": state_dict()}


def nested() -> Any:
    return {"nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])}


def gradient_and_hooks() -> Any:
    tensor = torch.ones(3, requires_grad=True)
    return {"leaf": tensor, "step": torch.tensor(3.0)}


def numbers_only() -> Any:
    return {"epoch": 3, "losses": [float(n) for n in range(3000)], "order": list(range(3000))}


CONTENTS: tuple[Content, ...] = (
    state_dict,
    half_precision,
    whole_trainer,
    optimizers,
    schedulers,
    lightning,
    hugging_face_rng,
    numpy_values,
    numpy_generator,
    options_and_paths,
    plain_containers,
    tied_and_shared,
    parameters_and_buffers,
    all_dtypes,
    dtypes_devices_sizes,
    quantized,
    sparse,
    nested,
    gradient_and_hooks,
    numbers_only,
)


NEW_FORMAT_ONLY = (all_dtypes, dtypes_devices_sizes, nested)
"""What torch saves in the old format, and cannot load from it: storages without a dtype, nested
tensors.
"""


def honest() -> Iterator[tuple[str, Any]]:
    """What trainers save: optimizers with schedules, layers of all kinds, values beside them."""
    rates = torch.optim.lr_scheduler
    pairs = (
        ("SGD", {"momentum": 0.9}, lambda made: rates.StepLR(made, 3)),
        ("Adam", {"amsgrad": True}, rates.ReduceLROnPlateau),
        ("AdamW", {"weight_decay": 0.1}, lambda made: rates.CosineAnnealingLR(made, 5)),
        ("Adagrad", {}, lambda made: rates.LambdaLR(made, lambda step: 1.0)),
        ("RMSprop", {"centered": True}, lambda made: rates.PolynomialLR(made, 5)),
        ("NAdam", {}, lambda made: rates.OneCycleLR(made, 0.1, total_steps=9)),
        ("Adafactor", {}, lambda made: torch.optim.swa_utils.SWALR(made, 0.1)),
    )
    for name, more, schedule in pairs:
        model, optimizer = _trained(name, **more)
        parts = {"model": model, "optimizer": optimizer, "scheduler": schedule(optimizer)}
        yield name, {**{key: each.state_dict() for key, each in parts.items()}, "step": 7}
    layers = {
        "norms": nn.ModuleList([nn.BatchNorm2d(4), nn.SyncBatchNorm(4), nn.GroupNorm(2, 4)]),
        "recurrent": nn.LSTM(4, 3, 2, bidirectional=True),
        "transformer": nn.Transformer(4, 2, 1, 1, 8, batch_first=True),
        "parametrized": nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)),
        "observers": torch.ao.quantization.FakeQuantize(),
        "attention": nn.MultiheadAttention(4, 2),
        "averaged": torch.optim.swa_utils.AveragedModel(nn.Linear(4, 3)),
    }
    for name, layer in layers.items():
        yield name, {"state_dict": layer.state_dict(), "best": float("-inf"), "epoch": 3}
    nan, model = float("nan"), _model().state_dict()
    forbid = torch.full((4, 4), -float("inf")).triu(1)
    yield "masks", {**model, "attn.mask": forbid, "causal": forbid}
    yield "metrics", {"model": model, "metrics": {"iou": torch.tensor([0.5, nan]), "loss": nan}}
    yield "stopping", {"model": model, "early_stopping": {"best": np.float64("inf"), "wait": 3}}
    yield "scaler", {"model": model, "scaler": torch.amp.GradScaler("cpu", init_scale=8.0)}
    yield "options", {"model": model, "args": argparse.Namespace(lr=0.1, out=PurePosixPath("a"))}
    yield "history", {"model": model, "history": deque([nan, 1.0]), "lr": np.float32(0.1)}


def safetensors(**tensors: torch.Tensor) -> bytes:
    """The bytes of a safetensors file."""
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}
    entries, data = [], b""
    for name, tensor in tensors.items():
        raw = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        shape = list(tensor.shape)
        entries.append(
            f'"{name}":{{"dtype":"{names[tensor.dtype]}","shape":{shape},"data_offsets":[{len(data)},{len(data) + len(raw)}]}}'
        )
        data += raw
    header = ("{" + ",".join(entries) + "}").encode()
    header += b" " * (-len(header) % 8)
    return struct.pack("<Q", len(header)) + header + data


def saved(content: Any, **more: Any) -> bytes:
    """The bytes that torch.save writes."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(content, file, **more)
    return file.getvalue()


def files() -> Iterator[tuple[str, bytes]]:
    """Name and bytes of each file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of prototypes
        for make in CONTENTS:
            content = make()
            yield f"{make.__name__}.pt", saved(content)
            if make not in NEW_FORMAT_ONLY:
                yield (
                    f"{make.__name__}-legacy.pt",
                    saved(content, _use_new_zipfile_serialization=False),
                )
    for protocol in (3, 4, 5):
        yield f"protocol-{protocol}.pt", saved(whole_trainer(), pickle_protocol=protocol)
    weights = {f"layers.{n}.weight": torch.ones(8, 4) * n for n in range(6)}
    for length in range(0, 40, 3):  # one header in 32 begins as a pickle does
        yield (
            f"weights-{length}.safetensors",
            safetensors(**{f"w{'x' * length}": torch.ones(4)}, **weights),
        )
    yield (
        "half.safetensors",
        safetensors(a=torch.ones(3, 3, dtype=torch.bfloat16), b=torch.arange(5)),
    )


def write(folder: Path) -> list[Path]:
    """All of them as files, the honest ones too."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files():
        (folder / name).write_bytes(content)
    for name, content in honest():
        (folder / f"honest-{name}.pt").write_bytes(saved(content))
    return sorted(folder.iterdir())
