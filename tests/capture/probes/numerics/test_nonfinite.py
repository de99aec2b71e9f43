"""The look after each step and the watch over operators: what they see and leave alone."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from auditor.rules.num.nonfinite import Nonfinite
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils import _python_dispatch

from auditor.capture.probes.numerics.nonfinite import HANDS_ON, NonfiniteProbe, bad_tensors
from auditor.capture.probes.numerics.nonfinite_origin import NonfiniteOriginProbe
from auditor.evidence.table import Evidence
from auditor.judging import catalogue, engine
from auditor.runs.plan import Plan, Replay
from tests.capture.drive import Drive, line_of, load
from tests.inprocess import record

RULE = catalogue.rule("NUM002")
PARTS = engine.parts_of((RULE, catalogue.rule("NUM013")))


def trainer(*, bad_at=None, losses=None, scale=1.0):
    """A step of a two-layer model; at one call the input of an exp is far too large."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 6), torch.nn.Sequential(torch.nn.Dropout(0.3), torch.nn.Linear(6, 3))
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    count = [0]

    def step():
        optimizer.zero_grad()
        scores = model(torch.randn(4, 6)) * (1000.0 if count[0] == bad_at else scale)
        weights = torch.exp(scores)
        loss = -(weights / weights.sum(-1, keepdim=True))[:, 0].mean()
        loss.backward()
        optimizer.step()
        count[0] += 1
        if losses is not None:
            losses.append(float(loss.detach()))

    return step


def bare(steps, **more):
    losses: list[float] = []
    step = trainer(losses=losses, **more)
    for _ in range(steps):
        step()
    return losses


def raises(after=lambda: None):
    after()
    raise ValueError("the user's own")


def hooks():
    """Everything global that the probes touch."""
    return (
        len(optimizers._global_optimizer_post_hooks),
        len(modules._global_forward_hooks),
        len(modules._global_forward_pre_hooks),
        torch.is_anomaly_enabled(),
        torch.is_anomaly_check_nan_enabled(),
        len(_python_dispatch._get_current_dispatch_mode_stack()),
    )


# -- the look after each step ----------------------------------------------------------------------


def test_the_replay_repeats_the_run_to_the_bit_also_under_the_watch(tmp_path):
    runs: list[list[float]] = []

    def make():
        runs.append([])
        return trainer(losses=runs[-1], bad_at=9)

    record(tmp_path / "r", make, PARTS, roots=[], steps=10)
    first, again = runs
    assert len(again) == 10
    assert repr(again) == repr(first[:10]) == repr(bare(10, bad_at=9))


def normed(spoiled_at, poisoned_at=None):
    """A step behind a guard, whose batch norm is given an infinity, and whose weight a NaN."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    count = [0]

    def step():
        x = torch.rand(8, 4)
        if count[0] == spoiled_at:
            x = x * 1e30 * 1e30
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if count[0] == poisoned_at:
            loss = loss * torch.log(torch.zeros(()))
        elif not loss.isfinite():
            loss = None
        if loss is not None:
            loss.backward()
            optimizer.step()
        count[0] += 1

    return step


def test_weights_are_told_whatever_statistics_were_before(tmp_path):
    recording = record(tmp_path / "r", lambda: normed(3, 8), PARTS, roots=[], steps=10)
    assert [row["what"] for row in recording.rows("nonfinite")] == ["buffer", "gradient"]
    found = Nonfinite.build(Evidence(recording))
    assert found.step == 8 and "torch.log" in found.birth.site.text
    assert found.tensors[0].what == "gradient"


def test_statistics_that_were_spoiled_before_the_first_step_are_nobodys_doing_here(tmp_path):
    def make():
        step = normed(0)
        step()
        return step

    recording = record(tmp_path / "r", make, PARTS, roots=[], steps=10)
    assert recording.rows("nonfinite") == []
    assert recording.rows("buffers")


def test_a_gradient_of_a_skipped_step_is_not_that_of_an_earlier_one(tmp_path):
    parameter, count = torch.nn.Parameter(torch.ones(3)), [0]
    optimizer = torch.optim.Rprop([parameter], lr=1e-3)

    def step():
        count[0] += 1
        optimizer.zero_grad()
        skipped = count[0] in (3, 8, 13)
        (parameter.sum() * (float("inf") if skipped else 1.0)).backward()
        if not skipped:
            optimizer.step()

    recording = record(tmp_path / "r", lambda: step, PARTS, roots=[], steps=10)
    assert recording.has("nonfinite")
    assert recording.rows("nonfinite") == []


def test_a_step_that_raises_after_the_optimizer_has_stepped_is_looked_at(tmp_path):
    step = trainer(bad_at=2)
    with Drive(tmp_path, NonfiniteProbe) as drive:
        with pytest.raises(ValueError, match="user"), drive.running("quiet"):
            drive.step(step)
            drive.step(step)
            drive.step(lambda: raises(after=step))
        (row,) = drive.rows("nonfinite")
    assert row["step"] == 2


def test_a_parameter_without_a_gradient_and_a_sparse_gradient():
    table, still = torch.nn.Embedding(5, 3, sparse=True), torch.nn.Parameter(torch.ones(2))
    table(torch.tensor([1, 1])).sum().backward()
    optimizer = torch.optim.SparseAdam([*table.parameters(), still], lr=0.1)
    assert bad_tensors([(optimizer, None)]) == []
    table.weight.grad._values()[0, 1] = float("nan")
    (bad,) = bad_tensors([(optimizer, None)])
    assert (bad.what, bad.place) == ("gradient", "group 0, parameter 0")
    still.data[0] = float("inf")
    assert [bad.what for bad in bad_tensors([(optimizer, None)])] == ["gradient", "parameter"]


def test_a_gradient_that_the_scaler_held_back_does_not_count():
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.full((2,), float("inf"))
    optimizer = torch.optim.Rprop([parameter])
    assert bad_tensors([(optimizer, torch.ones(()))]) == []
    assert [bad.what for bad in bad_tensors([(optimizer, torch.zeros(()))])] == ["gradient"]
    parameter.data[0] = float("nan")
    assert [bad.what for bad in bad_tensors([(optimizer, torch.ones(()))])] == ["parameter"]


@pytest.mark.parametrize("size", [3, 100_000])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_dtype_and_size_and_numbers_that_overflow_a_sum(dtype, size):
    parameter = torch.nn.Parameter(torch.full((size,), torch.finfo(dtype).max, dtype=dtype))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    assert bad_tensors([(optimizer, None)]) == []
    parameter.data[size // 2] = float("-inf")
    assert [bad.what for bad in bad_tensors([(optimizer, None)])] == ["parameter"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "kind",
    [*sorted(HANDS_ON, key=lambda kind: kind.__name__), torch.optim.Rprop],
    ids=lambda kind: kind.__name__,
)
def test_a_bad_gradient_is_seen_whatever_the_optimizer_makes_of_it(kind, value):
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = kind([parameter], lr=1e-3)
    for gradient in (0.1, 0.2, value):
        parameter.grad = torch.full((3,), gradient)
        optimizer.step()
    assert {bad.what for bad in bad_tensors([(optimizer, None)])} >= {"gradient"}
    parameter.grad = None
    assert bool(bad_tensors([(optimizer, None)])) == (kind in HANDS_ON)


# -- the watch over operators ----------------------------------------------------------------------


def births(tmp_path: Path, source: str, *, steps: int = 1):
    """Births of the last step of a program with a function ``step``, and the program."""
    with Drive(tmp_path, NonfiniteOriginProbe) as drive:
        program = load(tmp_path, HEAD + source)
        replay = Replay(steps - 1, max(0, steps - 2))
        drive.context.plan = replace(drive.context.plan, purpose=replay)
        before = hooks()
        try:
            drive.run("replay", program.step, steps)
        finally:
            torch.use_deterministic_algorithms(False)
        assert hooks() == before
        return drive.rows("births"), program


HEAD = """
import torch
from torch import nn
torch.manual_seed(0)
model, weight = nn.Linear(2, 2), nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([*model.parameters(), weight], lr=1)
"""


PLACES = {
    "a recomputed forward": (
        """
from torch.utils.checkpoint import checkpoint
def block(x):
    return torch.exp(model(x) + 100)  # here

def step():
    p = checkpoint(block, torch.ones(1, 2), use_reentrant=False)
    (p / p.sum()).square().sum().backward()
    optimizer.step()
""",
        ("exp", "float32"),
    ),
    "a cast that overflows half precision": (
        """
def step():
    x = model(torch.ones(1, 2)) * 1e6
    half = x.to(torch.float16)  # here
    (half.float() - half.float().mean()).square().sum().backward()
    optimizer.step()
""",
        ("to_copy", "float16"),
    ),
    "memory that was never written": (
        """
torch.use_deterministic_algorithms(True)  # fills fresh memory with NaN

def step():
    buffer = torch.empty(64)
    for i in range(64):
        buffer[i] = float(i)
    taken = torch.empty(6)
    taken[torch.arange(3)] = torch.arange(3.0)
    taken[torch.arange(3, 6)] = torch.arange(3.0)
    buffer += taken.sum()
    share = torch.empty(3)
    torch.div(weight.detach(), weight.detach(), out=share)  # here
    buffer.mul_(share.sum())
    (weight.sum() * buffer.sum()).backward()
    optimizer.step()
    torch.use_deterministic_algorithms(False)
""",
        ("div", "float32"),
    ),
    "a value that was overwritten": (
        """
def step():
    scores = torch.ones(3) / torch.zeros(3)
    scores.fill_(2.0)
    scores.div_(weight.detach())  # here
    (weight * scores).sum().backward()
    optimizer.step()
""",
        ("div", "float32"),
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_a_value_is_born_where_it_first_was_not_finite(tmp_path, name):
    source, born = PLACES[name]
    rows, program = births(tmp_path, source)
    assert {row["at_line"] for row in rows} == {line_of(program, "here")}
    assert (rows[0]["op"], rows[0]["dtype"]) == born


def test_memory_that_is_read_before_it_is_written_is_where_it_was_taken(tmp_path):
    rows, program = births(
        tmp_path,
        """
def step():
    torch.use_deterministic_algorithms(True)  # fills fresh memory with NaN
    total = torch.empty(3)  # here
    torch.use_deterministic_algorithms(False)
    total += 1
    (weight * total).sum().backward()
    optimizer.step()
""",
    )
    (row,) = rows
    assert (row["op"], row["fill"], row["at_line"]) == ("empty", True, line_of(program, "here"))


def test_a_constant_is_a_fill_and_zero_times_infinity_is_not(tmp_path):
    source = """
def step():
    (weight * DATA).sum().backward()
    optimizer.step()
"""
    rows, _ = births(tmp_path, source.replace("DATA", "torch.zeros(3) * float('inf')"))
    assert (rows[0]["op"], rows[0]["fill"], rows[0]["constants"]) == ("mul", False, ["inf"])
    rows, _ = births(tmp_path, source.replace("DATA", "torch.full((3,), float('nan'))"))
    assert (rows[0]["op"], rows[0]["fill"], rows[0]["constants"]) == ("full", True, ["nan"])


# -- the plan --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "last_good", "watched"),
    [
        (0, -1, range(1)),
        (7, 6, range(6, 8)),
        (7, 3, range(4, 8)),
        (60, -1, range(44, 61)),
        (1, 0, range(2)),
    ],
)
def test_the_steps_that_a_replay_watches(tmp_path, bad, last_good, watched):
    plan = Plan("a:b", (), 50, 5, "cpu", str(tmp_path), PARTS).replay(bad, last_good)
    assert plan.watched == watched
    assert plan.folder == f"{tmp_path}/replay"
    assert Plan("a:b", (), 50, 5, "cpu", str(tmp_path), PARTS).watched == range(0)
