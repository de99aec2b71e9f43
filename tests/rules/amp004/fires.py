import torch

from tests.rules.amp004.silent import _parts
from tests.rules.programs import scaled_once


def context_that_was_made_before__cuda():
    model, optimizer, scaler, x = _parts()
    context = torch.amp.autocast("cuda", dtype=torch.float16)

    def step():
        with context:  # AMP004
            loss = model(x).float().mean()
        scaled_once(optimizer, scaler, loss)

    return step
