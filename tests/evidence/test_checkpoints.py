"""Scanned checkpoints: the verdict and words of each, which is furthest, what settings ask for."""

import pytest

from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.scans import ElementCounts, OptimizerFacts, Scan, Setting, TensorFacts

FINE = ElementCounts(3, low=0.0, high=4.0)
MODEL = TensorFacts("model.w", "float32", (3,), "model", FINE)
MOMENT = TensorFacts("opt.state[0].exp_avg_sq", "float32", (3,), "optimizer", FINE)


def one(path="/runs/a.pt", **facts):
    return Checkpoint(Scan(path=path, format="torch zip", size=2048, **facts))


def test_what_a_checkpoint_holds_in_words():
    assert one().said == "torch zip, 2 KiB, 0 tensors"
    adam = OptimizerFacts("opt", steps=7)
    more = {"scaler": True, "rng": True, "limits": ("large",)}
    held = one(tensors=(MODEL, MOMENT), optimizers=(adam,), **more)
    there = "optimizer, scaler, rng, not wholly looked at"
    assert held.said == f"torch zip, 2 KiB, 2 tensors, step 7, {there}"
    assert (held.name, held.weights) == ("a.pt", (MODEL,))


def test_the_largest_gradient_that_second_moments_remember():
    adam, other = OptimizerFacts("opt"), OptimizerFacts("other")

    def state(name, high, owner="opt", place="exp_avg_sq"):
        tally = None if high is None else ElementCounts(1, low=high, high=high)
        name = f"{owner}.state[{name}]"
        return TensorFacts(name, "float32", (1,), "optimizer", tally, (owner, "state", place))

    low, none = state(2, -1.0), state(3, None)
    given = (state(1, 9.0), low, none, state(4, 9.0, place="exp_avg"), state(1, 4.0, "other"))
    moments = list(one(tensors=given, optimizers=(adam, other)).moments)
    assert moments == [(adam, [(given[0], 3.0), (low, 0.0)]), (other, [(given[-1], 2.0)])]


def test_the_latest_good_one_is_furthest_or_youngest():
    early, late = one("b", progress={"step": 5}, modified=9.0), one("c", progress={"step": 6})
    epoch = one("d", progress={"step": 6, "epoch": 1})
    again = one("e", progress={"step": 6, "epoch": 1}, modified=1.0)
    broken, unsaid = one("f", progress={"step": 9}, damage=("cut",)), one("g", modified=2.0)
    assert Checkpoints((early, late)).latest_good is late
    assert Checkpoints((epoch, late, broken)).latest_good is epoch
    assert Checkpoints((again, epoch)).latest_good is again
    assert Checkpoints((late, unsaid)).latest_good is unsaid  # by time where one says nothing
    assert Checkpoints((late, unsaid)).instead == "The latest good one is g. "
    assert Checkpoints((broken,)).latest_good is None and Checkpoints((broken,)).instead == ""


@pytest.mark.parametrize(
    ("name", "value", "half"),
    [
        ("precision", "FP16", True),
        ("precision", "bf16", False),
        ("precision", 16.0, False),
        ("trainer.fp16", True, True),
        ("use_fp16", True, True),
        ("fp16", False, False),
        ("fp16.enabled", True, True),
        ("ema.enabled", True, False),
        ("half.verbose", True, False),
    ],
)
def test_a_setting_that_says_half(name, value, half):
    assert Checkpoints(settings=(Setting(name, value),)).in_half is half
