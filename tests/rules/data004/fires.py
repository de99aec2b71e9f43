import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def a_flag_that_was_false__rehearsal():
    model = nn.Linear(8, 1, device="cuda")
    device = torch.device("cuda")
    use_cuda = device == "cuda"
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4, pin_memory=True))

    def step():
        (x,) = next(batches)
        model(x.to(device, non_blocking=use_cuda)).mean().backward()  # DATA004

    return step


def a_dict_of_tensors__rehearsal():
    model = nn.Linear(8, 1, device="cuda")
    rows = [{"x": torch.ones(8), "y": torch.ones(1)} for _ in range(400)]
    batches = iter(DataLoader(rows, batch_size=4, pin_memory=True))

    def step():
        batch = {name: value.to("cuda") for name, value in next(batches).items()}  # DATA004
        (model(batch["x"]) - batch["y"]).mean().backward()

    return step
