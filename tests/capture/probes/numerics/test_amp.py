"""The probe of mixed precision: what it sees, and that it leaves no trace in torch."""

from auditor.capture.probes.numerics.amp import AmpProbe
from tests.capture.drive import watched

SOURCE = """import torch
from torch.nn.utils import clip_grad_norm_
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

def step():
    with torch.autocast("cpu", dtype=torch.bfloat16):    # autocast
        loss = model(torch.ones(1, 2)).float().sum()
        scaler.scale(loss * float("inf")).backward()     # scale
    clip_grad_norm_(model.parameters(), 1.0)             # clip
    scaler.step(optimizer)
    scaler.update()                                      # update
"""


def test_a_disabled_scaler_runs_as_without_us(tmp_path):
    user, drive = watched(
        tmp_path,
        SOURCE.replace("init_scale=8.0", "enabled=False").replace(' * float("inf")', ""),
        AmpProbe,
    )
    assert {row["what"] for row in drive.rows("amp")} == {"autocast", "backward"}


def test_an_iterator_of_scaled_losses_is_left_to_the_user(tmp_path):
    user, drive = watched(
        tmp_path,
        """
        import torch
        model = torch.nn.Linear(2, 2)
        scaler = torch.amp.GradScaler("cpu")

        def step():
            with torch.autocast("cpu", dtype=torch.float16):
                losses = [model(torch.ones(1, 2)).float().sum() for _ in range(2)]
            scaled = list(scaler.scale(loss for loss in losses))
            assert len(scaled) == 2
            torch.stack(scaled).sum().backward()
        """,
        AmpProbe,
    )
    assert "backward_unscaled" not in {row["what"] for row in drive.rows("amp")}
