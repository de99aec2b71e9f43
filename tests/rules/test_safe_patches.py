"""A patch that is called safe changes nothing that is trained: each case of ``fires.py`` with one
takes the same steps with it and without it, from one seed, to the bit.
"""

import contextlib
import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS, Backward
from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.model import Edit, Finding
from auditor.patch import Refused, apply_edits
from tests.inprocess import judge
from tests.rules.test_rules import CUDA, HERE, RULES, TRACED, cases, load, roots, unload

SAFE = (
    *("SYNC001", "SYNC003", "SYNC006", "SYNC009", "SYNC010", "DATA003", "DATA004"),
    *("GRAPH001", "GRAPH002", "MEM009", "MEM015", "NUM009", "AMP005"),
)
"""Rules that call a patch safe."""

STEPS = 12

ALWAYS = {
    *("losses_kept_before_the_backward", "total_summed_with_its_graph"),
    *("retained_by_habit", "last_item_read_by_the_forward"),
}
"""Cases that are tried with every ``make test``, the others where tests may take minutes."""


def tried() -> Iterator[Any]:
    for case in cases("fires"):
        code, name = case.values
        if code in SAFE and not name.endswith(TRACED):
            marks = () if name in ALWAYS else pytest.mark.full
            yield pytest.param(code, name, marks=marks, id=f"{code}-{name}")


@pytest.mark.parametrize(("code", "name"), list(tried()))
def test_a_safe_patch_changes_no_bit(code: str, name: str, tmp_path: Path) -> None:
    path, patched = HERE / code.lower() / "fires.py", tmp_path / "patched.py"
    rehearsed = name.endswith("__rehearsal") or (name.endswith("__cuda") and not CUDA)
    how = {"device": "rehearse" if rehearsed else "auto", "ranks": name.endswith("__processes")}
    try:
        findings, _ = judge(
            tmp_path / "judged", made(path, name), (RULES[code],), roots=roots(path), **how
        )
    finally:
        unload(path)
    edits = [edit for each in findings for edit in safe_edits(each)]
    with contextlib.suppress(Refused):
        patched.write_bytes(apply_edits(path.read_bytes(), edits))
    if edits and patched.is_file():
        before = steps_of(tmp_path / "as it is", path, name, how)
        after = steps_of(tmp_path / "with it", patched, name, how)
        assert before and len(before) == len(after)
        assert all(map(torch.equal, before, after))


@pytest.mark.parametrize(
    "name",
    [
        "last_item_read_by_the_forward",
        "history_read_by_the_forward_that_fills_it",
        "losses_whose_last_runs_the_backward",
        "penalty_of_what_a_hook_keeps",
        "newest_by_another_name",
        "all_losses_in_one_backward_now_and_then",
    ],
)
def test_a_graph_that_the_step_needs_is_not_cut_safely(name: str, tmp_path: Path) -> None:
    path = HERE / "graph001" / "fires.py"
    try:
        (found,), _ = judge(tmp_path, made(path, name), (RULES["GRAPH001"],), roots=[path])
    finally:
        unload(path)
    assert not safe_edits(found)


LOADED = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Meter:
    def __init__(self):
        self.seen = []
    def item(self):
        return self.seen.pop() if self.seen else 0.0

model = nn.Linear(8, 1, device=DEVICE)
batches = iter(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4, pin_memory=PINNED))
meter, turns = Meter(), iter(range(1000))

def step():
    (x,) = next(batches)
    {}
    {}

def make():
    return step
"""


def on(device: str, line: str, more: str = "pass", *, pinned: bool = False) -> str:
    text = LOADED.replace("DEVICE", repr(device)).replace("PINNED", str(pinned))
    return text.replace("{}", line, 1).replace("{}", more, 1)


KEEPS = "loss = model(x).mean(); loss.backward(retain_graph=True)"
CHECKS = "torch.autograd.set_detect_anomaly(True); model(x).mean().backward()"
RESETS = "torch.cuda.reset_peak_memory_stats()"
MOVES = 'model(x.to("cuda")).mean().backward()'
PRINTS = 'print(f"{meter.seen} {y.item()}")'


@pytest.mark.parametrize(
    ("code", "safe", "text"),
    [
        ("GRAPH002", True, on("cpu", KEEPS)),
        ("GRAPH002", False, on("cpu", KEEPS, "if next(turns) == 500: loss.backward()")),
        ("NUM009", True, on("cpu", CHECKS)),
        ("NUM009", False, on("cpu", f"try: {CHECKS}\n    except RuntimeError: model.zero_grad()")),
        ("SYNC009", True, on("cuda", RESETS, MOVES)),
        ("SYNC009", False, on("cuda", RESETS, f"{MOVES}; torch.cuda.max_memory_allocated()")),
        ("DATA004", True, on("cuda", MOVES, pinned=True)),
        ("DATA004", False, on("cuda", MOVES, "x.zero_()", pinned=True)),
        ("SYNC001", True, on("cuda", f"y = model(x.cuda()).mean()\n    {PRINTS}").replace("item(self)", "one(self)")),
        ("SYNC001", False, on("cuda", f"y = model(x.cuda()).mean()\n    {PRINTS}")),
    ],
)  # fmt: skip
def test_what_may_change_something_is_not_safe(
    code: str, safe: bool, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    device = "rehearse" if "cuda" in text else "auto"
    try:
        found, verdicts = judge(
            tmp_path / "run", made(path, "make"), (RULES[code],), roots=[path], device=device
        )
    finally:
        unload(path)
    assert found, verdicts
    assert [bool(safe_edits(each)) for each in found] == [safe] * len(found)


def safe_edits(finding: Finding) -> tuple[Edit, ...]:
    return finding.remedy.edits if finding.remedy is not None and finding.remedy.safe else ()


def made(path: Path, name: str) -> Callable[[], Callable[[], Any]]:
    """What makes a case's step from one seed."""

    def make() -> Callable[[], Any]:
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002 - what programs draw from
        torch.manual_seed(0)
        step: Callable[[], Any] = getattr(load(path), name)()
        return step

    return make


def steps_of(folder: Path, path: Path, name: str, how: dict[str, Any]) -> list[torch.Tensor]:
    """Losses, parameters and gradients of the first steps, with nothing else watched."""

    def make() -> Callable[[], Any]:
        step, number = made(path, name)(), itertools.count()

        def counted() -> Any:
            if next(number) == STEPS:
                end()
            return step()

        return counted

    try:
        with watched() as (seen, end):
            judge(folder, make, (), roots=[path], **how)
    finally:
        unload(path)
    return seen


@contextlib.contextmanager
def watched() -> Iterator[tuple[list[torch.Tensor], Callable[[], None]]]:
    """Losses as each backward begins, and parameters after each step of an optimizer and at the end
    with their gradients; and what ends it.
    """
    seen: list[torch.Tensor] = []
    parameters: list[torch.Tensor] = []
    over: list[bool] = []

    def keep(*tensors: torch.Tensor | None) -> None:
        with LOOKING, torch.no_grad():
            held = (each for each in tensors if each is not None and not over)
            seen.extend(each.detach().cpu().clone() for each in held)

    def end() -> None:
        keep(*parameters, *(each.grad for each in parameters if each is not None))
        over.append(True)

    class Losses:
        def backward_begins(self, call: Backward) -> None:
            keep(*call.tensors)

        def backward_ends(self, call: Backward) -> None:
            pass

        def backward_lost(self, error: Exception) -> None:
            raise error

    losses = Losses()
    registered = register_module_parameter_registration_hook(
        lambda module, name, parameter: parameters.append(parameter)
    )
    stepped = register_optimizer_step_post_hook(
        lambda optimizer, args, kwargs: keep(
            *(each for group in optimizer.param_groups for each in group["params"])
        )
    )
    BACKWARD_HOOKS.add(losses)
    try:
        yield seen, end
    finally:
        BACKWARD_HOOKS.remove(losses)
        registered.remove()
        stepped.remove()
