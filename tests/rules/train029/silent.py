import torch
from torch import nn
from torch.autograd import Function


class Rounded(Function):
    @staticmethod
    def forward(ctx, x):
        return (x * 8).round() / 8

    @staticmethod
    def backward(ctx, grad):
        return grad


class Reversed(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -0.1 * grad


class Spike(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad / (1 + x.abs()).square()


class Clamped(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clamp(-1, 1)

    @staticmethod
    def backward(ctx, grad):
        return grad


class Swish(Function):
    @staticmethod
    def forward(ctx, x, beta):
        ctx.save_for_backward(x)
        ctx.beta = beta
        return x * torch.sigmoid(beta * x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(ctx.beta * x)
        return grad * (s + ctx.beta * x * s * (1 - s)), None


class SinglePrecision(Function):
    @staticmethod
    def forward(ctx, x):
        assert x.dtype == torch.float32
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        return grad


class WithoutTheWeights(Function):
    """Their gradient is left out on purpose."""

    @staticmethod
    def forward(ctx, x, weights):
        ctx.save_for_backward(weights)
        return x * weights

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


def _through(function, *more):
    layer = nn.Linear(8, 8)

    def step():
        function.apply(layer(torch.randn(4, 8)), *more).square().mean().backward()

    return step


def rounded_with_the_gradient_of_the_identity():
    return _through(Rounded)


def gradient_that_is_reversed():
    return _through(Reversed)


def spike_with_a_surrogate_gradient():
    return _through(Spike)


def clamped_with_the_gradient_of_the_identity():
    return _through(Clamped)


def right_derivative_and_a_constant():
    return _through(Swish, 1.5)


def made_for_one_dtype():
    return _through(SinglePrecision)


def gradient_of_one_input_left_out():
    return _through(WithoutTheWeights, nn.Parameter(torch.rand(8)))
