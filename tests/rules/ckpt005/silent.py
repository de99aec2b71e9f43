import json
from pathlib import Path

import torch
from torch import nn

from tests.rules.programs import optimized


def _saved(**more):
    model, optimizer = optimized(nn.Linear(4, 1), torch.optim.AdamW, lr=0.01)

    def step():
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), **more}, "last.pt")

    return step


def weights_alone_for_export():
    return lambda: torch.save(nn.Linear(4, 1).state_dict(), "last.pt")


def best_model_with_its_epoch():
    return lambda: torch.save({"model": nn.Linear(4, 1).state_dict(), "epoch": 3, "accuracy": 0.9}, "best.pt")


def step_only_in_the_optimizer():
    return _saved(rng=torch.get_rng_state())


def bfloat16_needs_no_scaler():
    Path("config.json").write_text(json.dumps({"precision": "bf16-mixed"}))
    return _saved(rng_state={"torch": torch.get_rng_state()}, epoch=1)


def optimizer_in_a_file_of_its_own():
    optimizer = torch.optim.SGD(nn.Linear(4, 1).parameters(), lr=0.1)
    return lambda: torch.save(optimizer.state_dict(), "optimizer.pt")
