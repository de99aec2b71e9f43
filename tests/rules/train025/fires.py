import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import losses


@losses(lambda: nn.Linear(8, 5))
def divergence_over_the_batch(head):
    teacher = torch.randn(6, 5).softmax(1)
    logp = F.log_softmax(head(torch.randn(6, 8)), dim=0)  # TRAIN025
    return F.kl_div(logp, teacher, reduction="batchmean")
