"""Any probe: training is the same to the bit, nothing lives longer, everything is put back."""

import gc
import signal
import sys
import threading
import types
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.overrides import _get_current_function_mode_stack
from torch.utils import _python_dispatch

from auditor.capture.probes.registry import PROBES
from tests.capture.drive import Drive, load

PROGRAM = """
import copy, io, random, torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
random.seed(0)
block = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2))
model = nn.Sequential(block, nn.Linear(8, 4), nn.Embedding(4, 2))
teacher = copy.deepcopy(block).eval()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.arange(64) % 4), batch_size=8)
batches, losses, shown = iter(loader), [], []

class Witness(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * (1 + random.random())
    @staticmethod
    def backward(ctx, grad): return grad

def step():
    x, y = next(batches)
    x.requires_grad_()
    optimizer.zero_grad()
    made = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
    other = torch.optim.SGD(made.parameters(), lr=0.1)
    made(x).sum().backward()
    other.step()
    made.eval()
    state = made.state_dict()
    made.load_state_dict(state)
    with torch.no_grad():
        wanted = teacher(x).double().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = checkpoint(block, x, use_reentrant=False)
        scores = model[1](hidden)
    picked = sum(model[2].weight[i].square().sum() for i in range(4))
    loss = nn.functional.cross_entropy(scores.float(), y) + (hidden - wanted).abs().mean() + picked
    seen = Witness.apply(loss)
    scaler.scale(seen).backward(retain_graph=True)
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    scheduler.step()
    losses.append(loss.item() + random.random())
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)
    if len(losses) == 3:
        raise ValueError("the program's own")
    shown.append([seen, seen.grad_fn, x, saved, made, other, state["0.weight"]])
"""

PACKAGES = "amp autograd nn optim profiler utils.data".split()
MODULES = {
    *"builtins gc io os pickle random subprocess tempfile threading time warnings torch".split(),
    *(
        f"torch.{each}"
        for each in "_tensor backends.cudnn compiler cuda distributed distributed.distributed_c10d "
        "functional random serialization utils.checkpoint utils._python_dispatch".split()
    ),
}


HOLD_OPTIMIZERS = ("results", "leaner")
"""Probes of short runs of their own, to whose end they hold the optimizers that they saw."""


def functions(owner: Any, deep: bool = True) -> Iterator[tuple[str, Any]]:
    """What an owner's names hold, as far as it can be called, and the code behind it."""
    for name, value in list(vars(owner).items()):
        kind = type(value)  # of torch's deprecated names isinstance() warns
        if issubclass(kind, type):
            if deep and value.__module__ == getattr(owner, "__name__", ""):
                yield from ((f"{name}.{each}", held) for each, held in functions(value, False))
            yield name, value
        elif callable(value) or issubclass(kind, classmethod | staticmethod | property):
            yield name, value
            if kind is types.FunctionType:
                yield f"{name}()", (value.__code__, value.__defaults__, value.__kwdefaults__)


def as_it_is() -> dict[str, Any]:
    """Everything global that probes touch."""
    found = {
        f"{module}.{name}": value
        for module, owner in list(sys.modules.items())
        if module in MODULES or module.startswith(tuple(f"torch.{each}" for each in PACKAGES))
        for name, value in functions(owner)
    }
    hooks = (modules, optimizers)
    found["hooks"] = [
        (name, len(held)) for owner in hooks for name, held in vars(owner).items()
        if name.startswith("_global_") and hasattr(held, "__len__")
    ]  # fmt: skip
    return found | {
        "modes": (
            len(_python_dispatch._get_current_dispatch_mode_stack()),
            len(_get_current_function_mode_stack()),
        ),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "interpreter": (sys.gettrace(), sys.getprofile(), sys.excepthook, sys.unraisablehook),
        "collector": (gc.isenabled(), len(gc.callbacks), gc.get_threshold()),
        "threads": threading.active_count(),
        "signals": [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)],
    }


def different(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    return [name for name, value in before.items() if now.get(name) != value]


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The losses without any probe; also what the program imports is imported then."""
    user = load(tmp_path_factory.mktemp("alone"), PROGRAM)
    with pytest.raises(ValueError, match="own"):
        for _ in range(3):
            user.step()
    return user.losses


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_nothing_is_changed_and_nothing_is_left(tmp_path, probe, alone):
    gc.collect()  # what other tests left is not collected, and warned of, within the step
    before = as_it_is()
    with Drive(tmp_path, probe) as drive:
        for each in sorted(probe.passes | probe.also):
            user = load(tmp_path, PROGRAM)
            with drive.running(each, user.step):
                drive.step(user.step)
                gc.disable()  # a reference cycle would now keep them
                shown = [weakref.ref(one) for one in user.shown.pop()]
                gone = [ref() for ref in shown]
                gc.enable()
                drive.step(user.step)
                user.shown.clear()
                with pytest.raises(ValueError, match="own"):
                    drive.step(user.step)
            if probe.name in HOLD_OPTIMIZERS:
                gone[5] = None
            assert gone == [None] * len(shown)
            assert user.losses == alone
            own = user.block[0], user.optimizer
            assert [
                n for each in own for n, held in vars(each).items() if "hooks" in n and held
            ] == []
    assert different(before, as_it_is()) == []
