import torch

from tests.rules.ckpt007.silent import _trained


def branch_multiplied_by_zero():
    return _trained(lambda model, n: (model[2](model[0](torch.ones(2, 4))) + 0.0 * model[1](torch.ones(2, 4))).mean())


def dead_units_under_rmsprop():
    def loss(model, n):
        hidden = torch.relu(model[0](torch.ones(2, 4)) - 100)
        return model[2](hidden + model[1](torch.ones(2, 4))).mean()

    return _trained(loss, torch.optim.RMSprop)


def one_gradient_out_of_all_proportion():
    def loss(model, n):
        scale = 1e9 if n == 3 else 1.0
        return model(torch.ones(2, 4)).mean() + scale * model[0].weight.sum()

    return _trained(loss)
