"""The probe of gradient norms: what is divided out, and what is left out."""

import pytest
from auditor.rules.num.probes.grad_norms import GradNormsProbe

from tests.capture.drive import watched

SOURCE = """import torch
weight = torch.nn.Parameter(torch.zeros(4, dtype=torch.{dtype}))
optimizer = torch.optim.{optimizer}([weight], lr=1e-9{more})
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled={scaled})
count = [0]

def step():
    count[0] += 1
    optimizer.zero_grad()
    scaler.scale((weight * {gradient}).sum()).backward()
    {clip}
    scaler.step(optimizer)  # steps
    scaler.update()
"""

PLAIN = {"dtype": "float32", "optimizer": "SGD", "more": "", "scaled": False, "gradient": "3.0"}
PLAIN |= {"clip": "pass"}


def rows_of(folder, pass_name="loud", steps=4, **changed):
    user, drive = watched(
        folder, SOURCE.format(**{**PLAIN, **changed}), GradNormsProbe, run=pass_name, steps=steps
    )
    return user, drive.rows("norms")


def test_every_fifth_step_where_times_are_taken(tmp_path):
    _, rows = rows_of(tmp_path, "quiet", 11)
    assert [row["step"] for row in rows] == [0, 5, 10]


@pytest.mark.parametrize(
    "changed",
    [
        {"scaled": True},
        {"scaled": True, "optimizer": "Adam", "more": ", fused=True"},
        {"clip": "torch.nn.utils.clip_grad_norm_([weight], 0.1)"},
        {
            "scaled": True,
            "clip": "scaler.unscale_(optimizer); torch.nn.utils.clip_grad_norm_([weight], 0.1)",
        },
    ],
    ids=["scaled", "scaled and fused", "clipped", "unscaled, then clipped"],
)
def test_the_norm_is_that_of_true_gradients_before_clipping(tmp_path, changed):
    _, rows = rows_of(tmp_path, **changed)
    assert [row["norm"] for row in rows] == pytest.approx([6.0] * 4)
    assert all(row["clipped"] == ("clip" in changed) for row in rows)


def test_a_norm_in_half_does_not_overflow(tmp_path):
    _, rows = rows_of(tmp_path, dtype="float16", gradient="6e4")
    assert [row["norm"] for row in rows] == pytest.approx([1.2e5] * 4, rel=1e-3)


@pytest.mark.parametrize(
    ("clip", "rates"),
    [
        ("pass", [(1e-9, 0.0)] * 3),
        (
            "optimizer.param_groups[0].update(initial_lr=0.5, lr=1.0 * count[0])",
            [(1.0, 0.5), (2.0, 0.5), (3.0, 0.5)],
        ),
        ("optimizer.param_groups[0]['lr'] = torch.tensor(1.0)", [(0.0, 0.0)] * 3),
    ],
)
def test_the_rate_and_what_a_scheduler_found(tmp_path, clip, rates):
    _, rows = rows_of(tmp_path, steps=3, clip=clip)
    assert [(row["rate"], row["base"]) for row in rows] == rates


@pytest.mark.parametrize(
    "optimizer", [{}, {"optimizer": "Adam", "more": ", fused=True"}], ids=["plain", "fused"]
)
def test_steps_that_the_scaler_skips_have_no_row(tmp_path, optimizer):
    _, rows = rows_of(
        tmp_path, scaled=True, gradient="(float('inf') if count[0] == 2 else 3.0)", **optimizer
    )
    assert [row["step"] for row in rows] == [0, 2, 3]
