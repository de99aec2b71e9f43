import json
from pathlib import Path

import torch
from torch import nn


def _trained(optimizer_of, *, leave_out, scheduled=False):
    model = nn.Linear(4, 1)
    optimizer = optimizer_of(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10) if scheduled else None
    count = [0]

    def step():
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        count[0] += 1
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": count[0], "rng": torch.get_rng_state()}
        if scheduler is not None:
            scheduler.step()
            saved["scheduler"] = scheduler.state_dict()
        torch.save({name: part for name, part in saved.items() if name not in leave_out}, "last.pt")

    return step


def scheduler_drove_the_rates_and_is_gone():
    return _trained(torch.optim.SGD, leave_out={"scheduler"}, scheduled=True)


def scheduler_without_its_optimizer():
    return _trained(torch.optim.AdamW, leave_out={"optimizer"}, scheduled=True)


def nothing_says_at_which_step():
    return _trained(torch.optim.SGD, leave_out={"step"})


def scaler_missing_though_float16_is_configured():
    Path("config.json").write_text(json.dumps({"precision": "fp16"}))
    return _trained(torch.optim.AdamW, leave_out=())
