import torch
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import Made, fed


def dataset_moves_each_sample__cuda():
    return fed(DataLoader(Made(lambda index: torch.ones(8).cuda()), batch_size=4), "cuda")  # DATA009


def a_transform_moves_each_sample__rehearsal():
    class Scaled:
        """A transform, far from the dataset that calls it."""

        def __init__(self, device):
            self.factor = torch.full((8,), 2.0, device=device)

        def __call__(self, sample):
            sample = sample.to(self.factor.device)  # DATA009
            return sample * self.factor

    transform = Scaled("cuda")
    return fed(DataLoader(Made(lambda index: transform(torch.ones(8))), batch_size=4), "cuda")


def tensors_of_the_dataset_are_there__rehearsal():
    loader = DataLoader(TensorDataset(torch.ones(4000, 8).cuda()), batch_size=4)  # DATA009
    return fed(loader, "cuda")
