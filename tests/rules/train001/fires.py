import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import case_of, losses, regressed


def module_of_a_loss():
    criterion = nn.L1Loss()
    return regressed(lambda out, y: criterion(out, y))  # TRAIN001


def written_by_hand():
    return regressed(lambda out, y: ((out - y) ** 2).mean())  # TRAIN001


@case_of(regressed)
def written_by_hand_target_first(out, y):
    error = y - out  # TRAIN001
    return error.abs().sum() / len(y)


def smooth_loss_without_reduction():
    return regressed(lambda out, y: F.smooth_l1_loss(out, y, reduction="none").mean())  # TRAIN001


def target_is_the_column():
    return regressed(lambda out, y: F.mse_loss(out.squeeze(-1), y), shape=(16, 1))  # TRAIN001


@case_of(regressed)
def value_loss_beside_another(out, y):
    value_loss = 0.5 * (y - out).pow(2).mean()  # TRAIN001
    return value_loss + 0.01 * out.square().mean()


@losses(lambda: nn.Linear(4, 5))
def channels_left_in_the_target(model):
    x = torch.randn(5, 4)
    y = x.sum(1).view(5, 1, 1) * torch.ones(5, 1, 5)
    model.zero_grad()
    return F.mse_loss(model(x), y)  # TRAIN001


@case_of(regressed)
def huber_loss_by_hand(out, y):
    """Its condition is computed from the difference, and with it."""
    error = out - y  # TRAIN001
    small = error.abs() < 1
    return torch.where(small, 0.5 * error**2, error.abs() - 0.5).mean()


@losses(lambda: nn.Conv1d(2, 1, 3, padding=1))
def a_channel_left_in_the_output_beside_slices(model):
    """A slice in the line makes no dimension."""
    x = torch.randn(6, 2, 12)
    model.zero_grad()
    error = model(x)[..., 2:] - x[:, 0][..., 2:]  # TRAIN001
    return error.cosh().log().mean()


@losses(lambda: nn.Sequential(nn.Linear(4, 1), nn.Flatten(0)))
def values_clipped_around_those_of_the_rollout(model):
    """What is repaired in one place meets the same column in another."""
    x = torch.randn(16, 4)
    returns, before = x.sum(1, keepdim=True), torch.zeros(16, 1)
    values = model(x)
    model.zero_grad()
    clipped = before + (values - before).clamp(-0.2, 0.2)  # TRAIN001
    plain = (returns - values) ** 2  # TRAIN001
    return torch.max(plain, (returns - clipped) ** 2).mean()


def weights_of_samples_as_a_row():
    weights = torch.rand(16)

    def loss_of(out, y):
        error = F.smooth_l1_loss(out, y, reduction="none")
        return (error * weights).mean()  # TRAIN001

    return regressed(loss_of, shape=(16, 1))


def losses_divided_by_a_column():
    chances = torch.rand(16, 1) + 0.1

    def loss_of(out, y):
        error = F.mse_loss(out.squeeze(-1), y, reduction="none")
        return (error / chances).mean()  # TRAIN001

    return regressed(loss_of)
