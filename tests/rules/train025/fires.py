import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import losses


@losses(lambda: nn.Linear(8, 5))
def divergence_over_the_batch(head):
    teacher = torch.randn(6, 5).softmax(1)
    logp = F.log_softmax(head(torch.randn(6, 8)), dim=0)  # TRAIN025
    return F.kl_div(logp, teacher, reduction="batchmean")


@losses(lambda: (nn.Linear(8, 3), DataLoader(TensorDataset(torch.randn(6, 8)), batch_size=6)))
def mixture_summed_over_the_batch(head, loader):
    weights = head(next(iter(loader))[0]).log_softmax(1)
    joint = weights - (torch.randn(6, 1) - torch.arange(3.0)).square()
    return -torch.logsumexp(joint, dim=0).mean()  # TRAIN025
