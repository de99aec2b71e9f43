import torch
from torch import nn
from torch.autograd import Function


def term_of_the_quotient_left_out():
    class WeightedMean(Function):
        """The gradient of the weights forgets that they are divided by their sum."""

        @staticmethod
        def forward(ctx, values, weights):
            total = weights.sum(-1, keepdim=True)
            ctx.save_for_backward(values, weights, total)
            return (values * weights / total).sum(-1)

        @staticmethod
        def backward(ctx, grad):
            values, weights, total = ctx.saved_tensors
            return grad[:, None] * weights / total, grad[:, None] * values / total  # TRAIN029

    layer = nn.Linear(8, 8)

    def step():
        values = layer(torch.randn(4, 8))
        WeightedMean.apply(values, values.sigmoid()).square().mean().backward()

    return step
