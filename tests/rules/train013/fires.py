import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import losses


def _batch():
    lengths = torch.randint(1, 10, (6,))
    return torch.randn(6, 10, 8), torch.arange(10) < lengths[:, None], torch.arange(6) % 2


def a_mask_that_an_inner_module_ignores():
    class Pooled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.head = nn.Linear(8, 16), nn.Linear(16, 2)

        def forward(
            self,
            x,
            mask,  # TRAIN013
        ):
            return self.head(self.inner(x).mean(1))

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.pooled = Pooled()

        def forward(self, x, mask):
            return self.pooled(x, mask=mask)

    model = Outer()
    batches = [_batch() for _ in range(40)]

    def step():
        x, mask, target = batches.pop()
        F.cross_entropy(model(x, mask.to("cpu", copy=True)), target).backward()

    return step


@losses(lambda: nn.Linear(8, 2))
def a_write_into_a_copy(model):
    x, mask, _ = _batch()
    h = model(x)
    h[~mask].zero_()  # TRAIN013
    return h.square().mean()


@losses(lambda: nn.Linear(1, 4))
def times_divided_to_zero(head):
    t = torch.randint(0, 100, (6,))
    share = t // 100  # TRAIN013
    return head(share[:, None].float()).square().mean()
