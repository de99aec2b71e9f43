import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import fed

ROWS = TensorDataset(torch.ones(4000, 512))


def asynchronous_in_vain__rehearsal():
    loader = DataLoader(ROWS, batch_size=64, pin_memory=False)  # DATA003
    return fed(loader, "cuda", 512, lambda x: x.cuda(non_blocking=True))


def inputs_and_labels_on_one_line__rehearsal():
    model = nn.Linear(512, 1, device="cuda")
    data = TensorDataset(torch.ones(4000, 512), torch.ones(4000, 512))
    batches = iter(DataLoader(data, batch_size=64))  # DATA003

    def step():
        x, y = next(batches)
        x, y = x.to("cuda"), y.to("cuda")
        (model(x) * y).mean().backward()

    return step


def class_of_batches_that_nobody_pins__rehearsal():
    class Pairs:
        def __init__(self, rows):
            self.x = torch.stack([row[0] for row in rows])

    loader = DataLoader(ROWS, batch_size=64, pin_memory=True, collate_fn=Pairs)  # DATA003
    return fed(loader, "cuda", 512, lambda batch: batch.x.to("cuda", non_blocking=True))
