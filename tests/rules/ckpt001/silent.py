from collections import OrderedDict

import torch
from torch import nn

from tests.rules.programs import optimized


def everything_that_weights_only_admits():
    model, optimizer = optimized(nn.Linear(4, 1), torch.optim.AdamW)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=100)

    def step():
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        scheduler.step()
        parts = OrderedDict(model=model.state_dict(), optimizer=optimizer.state_dict(), scheduler=scheduler.state_dict())
        torch.save({**parts, "names": {"a", "b"}, "shape": model.weight.shape, "dtype": torch.bfloat16}, "last.pt")

    return step


def parameter_saved_as_it_is():
    weight = nn.Parameter(torch.ones(3))
    return lambda: torch.save({"weight": weight, "raw": b"bytes", "device": torch.device("cpu")}, "last.pt")


def sparse_and_quantized_tensors():
    sparse = torch.eye(3).to_sparse()
    return lambda: torch.save({"sparse": sparse, "complex": torch.ones(2, dtype=torch.complex64)}, "last.pt")


def state_dict_in_the_old_format():
    return lambda: torch.save(nn.Linear(4, 1).state_dict(), "last.pt", _use_new_zipfile_serialization=False)
