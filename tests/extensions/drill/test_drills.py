"""Each way to meet a fault, and what the drill says of it."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from auditor.extensions.drill.report import judged
from auditor.runs.plan import Drill

HERE = Path(__file__).parent


def _load(name):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


drilling, trainers = _load("drilling"), _load("trainers")

NAN, OOM = "nan", "oom"

CASES = [
    # trainer, fault, where, survived, what is said of it
    (
        "unguarded",
        NAN,
        "batch",
        False,
        "the NaN reached 6 of 6 parameters at step 4; checkpoints ckpt_5.pt, ckpt_10.pt hold it",
    ),
    ("unguarded", NAN, "activation", False, "the NaN reached"),
    ("unguarded", NAN, "gradient", False, "the NaN reached 1 of 6 parameters at step 4"),
    ("unguarded", "inf", "batch", False, "the infinity reached"),
    ("skips_a_bad_loss", NAN, "batch", True, "The update of step 4 was left out"),
    ("skips_a_bad_loss", NAN, "activation", True, "The update of step 4 was left out"),
    (
        "skips_a_bad_loss",
        NAN,
        "gradient",
        False,
        "1 of 6 parameters",
    ),  # a guard on the loss does not see a gradient
    (
        "raises_on_a_bad_loss",
        NAN,
        "batch",
        True,
        "stopped at step 4 with FloatingPointError: loss is nan",
    ),
    (
        "raises_on_a_bad_gradient_norm",
        NAN,
        "gradient",
        True,
        "stopped at step 4 with RuntimeError: The total norm",
    ),
    ("checks_after_the_update", NAN, "batch", False, "the NaN reached 6 of 6 parameters at step 4"),
    (
        "skips_but_the_batch_norm_remembers",
        NAN,
        "batch",
        False,
        "the NaN reached 2 buffers at step 4",
    ),
    ("scaled", NAN, "gradient", True, "GradScaler skipped the update of step 4"),
    ("scaled", NAN, "batch", True, "GradScaler skipped the update of step 4"),
    ("cleans_its_batch", NAN, "batch", True, "It reached no loss"),
    ("rolls_back", NAN, "batch", True, "was gone at the end"),
    ("carries_a_hidden_state", NAN, "batch", False, "no later step trained"),
    ("masked", NAN, "batch", True, "reached no parameter, no optimizer state and no buffer"),
    ("unhandled", OOM, "gradient", False, "4 completed steps are lost"),
    (
        "retries_backward",
        OOM,
        "gradient",
        False,
        "the graph of the failed attempt, whose buffers the first call had freed",
    ),
    (
        "retries_with_what_was_accumulated",
        OOM,
        "gradient",
        False,
        "gradients were not cleared before the retry",
    ),
    (
        "retries_with_what_was_accumulated",
        OOM,
        "activation",
        True,
        "equal those of the undisturbed run bit for bit",
    ),
    ("retries_on_a_kept_graph", OOM, "gradient", False, "without a fresh forward"),
    ("retries_rightly", OOM, "gradient", True, "equal those of the undisturbed run bit for bit"),
    ("retries_rightly", OOM, "activation", True, "equal those of the undisturbed run bit for bit"),
    ("retries_rightly", OOM, "batch", True, "equal those of the undisturbed run bit for bit"),
    ("retries_with_dropout", OOM, "gradient", True, "the retry drew new random numbers"),
    ("retries_inside_the_handler", OOM, "gradient", True, "ran inside the except block"),
    ("drops_the_batch", OOM, "gradient", True, "its batch was dropped"),
    (
        "drops_the_batch_and_keeps_its_gradients",
        OOM,
        "gradient",
        False,
        "gradients of the failed attempt were not cleared",
    ),
    ("saves_and_stops", OOM, "gradient", True, "a checkpoint was saved: rescue.pt"),
    ("accumulates", OOM, "gradient", True, "equal those of the undisturbed run bit for bit"),
]


@pytest.mark.parametrize(
    ("name", "what", "where", "survived", "said"), CASES, ids=lambda value: str(value)[:40]
)
def test_the_verdict_and_its_reason(tmp_path, name, what, where, survived, said):
    report = drilling.drilled(tmp_path, getattr(trainers, name), Drill(what, 4, where))
    everything = "\n".join([*(each.text for each in report.observations), report.verdict])
    assert report.survived is survived, everything
    assert said in everything
    if not survived:
        assert report.verdict.startswith(f"FAILED {what}@4: ")
    content = json.loads(report.to_json())
    assert content["schema"] == "audit-drill/1"
    assert content["fault"]["planted"]["step"] == 4


def test_a_right_retry_is_not_told_from_an_undisturbed_run_by_its_losses(tmp_path):
    report = drilling.drilled(tmp_path, trainers.retries_rightly, Drill("oom", 4, "gradient"))
    assert report.pair.first.losses == report.pair.second.losses
    assert len(report.pair.first.losses) == 10
    reached = judged(report.order, replace(report.pair, changed=("best.pt",)))
    assert reached.survived and reached.observations[0].text.endswith(
        "changed, by the program or by somebody else: best.pt"
    )


def test_everything_is_put_back(tmp_path):
    save, load, init = torch.save.__code__, torch.load.__code__, torch.optim.Optimizer.__init__
    next_batch, entered = (
        torch.utils.data.dataloader._BaseDataLoaderIter.__next__,
        torch.nn.modules.module._global_forward_hooks,
    )
    drilling.drilled(tmp_path, trainers.raises_on_a_bad_loss, Drill("nan", 4, "batch"))
    assert (torch.save.__code__, torch.load.__code__, torch.optim.Optimizer.__init__) == (
        save,
        load,
        init,
    )
    assert torch.utils.data.dataloader._BaseDataLoaderIter.__next__ is next_batch
    assert not entered and not torch.nn.modules.module._global_forward_pre_hooks


def test_what_the_user_holds_is_not_poisoned(tmp_path):
    held = torch.ones(8, 4)

    def make():
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step():
            optimizer.zero_grad()
            model(held).sum().backward()
            optimizer.step()

        return step

    report = drilling.drilled(tmp_path, make, Drill("nan", 2, "batch"))
    assert not report.survived
    assert bool(torch.isfinite(held).all())
    assert "the first floating-point tensor that entered a module (Linear)" in drilling.texts(
        report, "note"
    )
