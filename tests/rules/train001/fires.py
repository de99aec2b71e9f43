import torch
from torch import nn
from torch.nn import functional as F


def _trained(loss_of, shape=(16,)):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        loss_of(model(x), x.sum(1).view(shape)).backward()
        optimizer.step()

    return step


def mse_of_a_column_and_a_row():
    def loss_of(out, y):
        return F.mse_loss(out, y)  # TRAIN001

    return _trained(loss_of)


def module_of_a_loss():
    criterion = nn.L1Loss()

    def loss_of(out, y):
        return criterion(out, y)  # TRAIN001

    return _trained(loss_of)


def written_by_hand():
    def loss_of(out, y):
        return ((out - y) ** 2).mean()  # TRAIN001

    return _trained(loss_of)


def written_by_hand_target_first():
    def loss_of(out, y):
        error = y - out  # TRAIN001
        return error.abs().sum() / len(y)

    return _trained(loss_of)


def smooth_loss_without_reduction():
    def loss_of(out, y):
        return F.smooth_l1_loss(out, y, reduction="none").mean()  # TRAIN001

    return _trained(loss_of)


def target_is_the_column():
    def loss_of(out, y):
        return F.mse_loss(out.squeeze(-1), y)  # TRAIN001

    return _trained(loss_of, (16, 1))


def value_loss_beside_another():
    def loss_of(out, y):
        value_loss = 0.5 * (y - out).pow(2).mean()  # TRAIN001
        return value_loss + 0.01 * out.square().mean()

    return _trained(loss_of)


def channels_left_in_the_target():
    torch.manual_seed(0)
    model = nn.Linear(4, 5)

    def step():
        x = torch.randn(5, 4)
        y = x.sum(1).view(5, 1, 1) * torch.ones(5, 1, 5)
        model.zero_grad()
        F.mse_loss(model(x), y).backward()  # TRAIN001

    return step


def huber_loss_by_hand():
    """Its condition is computed from the difference, and with it."""

    def loss_of(out, y):
        error = out - y  # TRAIN001
        small = error.abs() < 1
        return torch.where(small, 0.5 * error**2, error.abs() - 0.5).mean()

    return _trained(loss_of)


def a_channel_left_in_the_output_beside_slices():
    """A slice in the line makes no dimension."""
    torch.manual_seed(0)
    model = nn.Conv1d(2, 1, 3, padding=1)

    def step():
        x = torch.randn(6, 2, 12)
        model.zero_grad()
        error = model(x)[..., 2:] - x[:, 0][..., 2:]  # TRAIN001
        error.cosh().log().mean().backward()

    return step


def quantiles_against_a_target_of_three_dimensions():
    torch.manual_seed(0)
    model, levels = nn.Linear(4, 3), torch.tensor([0.1, 0.5, 0.9])

    def step():
        x = torch.randn(16, 4)
        y = x.sum(1).view(-1, 1, 1)
        model.zero_grad()
        gap = y - model(x)  # TRAIN001
        torch.maximum(levels * gap, (levels - 1.0) * gap).mean().backward()

    return step


def values_clipped_around_those_of_the_rollout():
    """What is repaired in one place meets the same column in another."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))

    def step():
        x = torch.randn(16, 4)
        returns, before = x.sum(1, keepdim=True), torch.zeros(16, 1)
        values = model(x)
        model.zero_grad()
        clipped = before + (values - before).clamp(-0.2, 0.2)  # TRAIN001
        plain = (returns - values) ** 2  # TRAIN001
        torch.max(plain, (returns - clipped) ** 2).mean().backward()

    return step


def weights_of_samples_as_a_row():
    weights = torch.rand(16)

    def loss_of(out, y):
        error = F.smooth_l1_loss(out, y, reduction="none")
        return (error * weights).mean()  # TRAIN001

    return _trained(loss_of, (16, 1))
