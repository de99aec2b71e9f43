import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import fed


def a_flag_that_was_false__rehearsal():
    device = torch.device("cuda")
    use_cuda = device == "cuda"
    loader = DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4, pin_memory=True)
    return fed(loader, device, move=lambda x: x.to(device, non_blocking=use_cuda))  # DATA004


def a_dict_of_tensors__rehearsal():
    model = nn.Linear(8, 1, device="cuda")
    rows = [{"x": torch.ones(8), "y": torch.ones(1)} for _ in range(400)]
    batches = iter(DataLoader(rows, batch_size=4, pin_memory=True))

    def step():
        batch = {name: value.to("cuda") for name, value in next(batches).items()}  # DATA004
        (model(batch["x"]) - batch["y"]).mean().backward()

    return step
