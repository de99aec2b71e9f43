"""OPT004 must report exactly the marked lines."""

import torch
from torch import nn


def on_the_gpu_path__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        model(torch.ones(4, 8, device="cuda")).mean().backward()
        nn.utils.clip_grad_norm_(  # OPT004
            model.parameters(),
            1.0,
            error_if_nonfinite=True,
        )

    return step
