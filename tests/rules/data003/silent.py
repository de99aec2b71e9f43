import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import fed

ROWS, SMALL = TensorDataset(torch.ones(4000, 512)), TensorDataset(torch.ones(4000, 8))


def batches_that_stay_on_the_host__rehearsal():
    w = torch.ones(1, device="cuda")
    return fed(DataLoader(SMALL, batch_size=4), behind=lambda: w.mul_(0.5))


def pinned_by_hand__rehearsal():
    loader = DataLoader(ROWS, batch_size=64)
    return fed(loader, "cuda", 512, lambda x: x.pin_memory().to("cuda", non_blocking=True))


def batches_of_a_few_bytes_are_a_note__rehearsal():
    return fed(DataLoader(SMALL, batch_size=4), "cuda", move=lambda x: x.to("cuda"))


def a_training_run_on_the_cpu():
    return fed(DataLoader(ROWS, batch_size=64), width=512)


class _Pinned:
    def __init__(self, rows):
        self.x = torch.stack([row[0] for row in rows])

    def pin_memory(self):
        self.x = self.x.pin_memory()
        return self


def class_of_batches_that_pins_itself__rehearsal():
    loader = DataLoader(ROWS, batch_size=64, pin_memory=True, collate_fn=_Pinned)
    return fed(loader, "cuda", 512, lambda batch: batch.x.to("cuda", non_blocking=True))
