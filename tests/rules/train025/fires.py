import torch
from torch import nn
from torch.nn import functional as F


def divergence_over_the_batch():
    head = nn.Linear(8, 5)

    def step():
        teacher = torch.randn(6, 5).softmax(1)
        logp = F.log_softmax(head(torch.randn(6, 8)), dim=0)  # TRAIN025
        F.kl_div(logp, teacher, reduction="batchmean").backward()

    return step


def mixture_summed_over_the_batch():
    head = nn.Linear(8, 3)

    def step():
        weights = head(torch.randn(6, 8)).log_softmax(1)
        joint = weights - (torch.randn(6, 1) - torch.arange(3.0)).square()
        (-torch.logsumexp(joint, dim=0).mean()).backward()  # TRAIN025

    return step
