import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import case_of, losses, regressed


def a_batch_of_one():
    return regressed(lambda out, y: ((out - y) ** 2).mean(), rows=1)


def a_bias_of_each_row():
    return regressed(lambda out, y: (out - y.view(-1, 1)).square().mean(), out=16)


@case_of(regressed, out=5)
def quantiles_against_one_target(out, y):
    error = y.unsqueeze(1) - out
    levels = torch.linspace(0.1, 0.9, 5)
    return torch.maximum(levels * error, (levels - 1) * error).mean()


@case_of(regressed, out=16)
def as_many_quantiles_as_rows(out, y):
    error = y.unsqueeze(1) - out
    return torch.maximum(0.9 * error, -0.1 * error).mean()


def all_pairs_with_two_dimensions_each():
    return regressed(lambda out, y: ((out - out.T) - (y[:, None] - y[None, :])).square().mean())


def predictions_against_all_anchors_nearest_taken():
    return regressed(lambda out, y: (out - y).abs().min(dim=1).values.mean())


def all_pairs_under_a_mask():
    mask = torch.ones(16, 16).tril()
    return regressed(lambda out, y: ((out - y).square() * mask).sum() / mask.sum())


def energy_of_samples_made_in_the_line():
    return regressed(lambda out, y: (out.squeeze(-1)[:, None] - y).abs().mean())


def diagonal_of_all_pairs():
    return regressed(lambda out, y: torch.diagonal((out - y).square()).mean())


@losses(lambda: (nn.Linear(4, 1), nn.Linear(16, 1), torch.linspace(-1, 1, 16)))
def kernel_centers_inside_the_model(first, last, centers):
    x = torch.randn(16, 4)
    spread = torch.exp(-((first(x) - centers) ** 2))
    return F.mse_loss(last(spread).squeeze(-1), x.sum(1))


def weights_of_classes():
    weights = torch.rand(16)
    return regressed(lambda out, y: -(weights * F.log_softmax(out, -1)).sum(-1).mean(), out=16)


@case_of(regressed)
def metric_without_gradients(out, y):
    with torch.no_grad():
        (out - y).square().mean()
    return (out.squeeze(-1) - y).square().mean()


def difference_of_two_model_outputs():
    return regressed(lambda out, y: (out - out.squeeze(-1)).square().mean())


def targets_all_alike():
    """Each meets the others, and they are the same."""
    return regressed(lambda out, y: F.mse_loss(out * 0 + out.mean(), torch.ones_like(y)))


@losses(lambda: nn.Sequential(nn.Linear(4, 8), nn.Dropout(), nn.Linear(8, 1)))
def replays_a_dropout_only_if_it_must_not(model):
    x = torch.randn(16, 4)
    return F.mse_loss(F.dropout(model(x), 0.5).squeeze(-1), x.sum(1))


@case_of(regressed)
def all_pairs_that_the_targets_choose(out, y):
    error = out - y
    chosen = y[:, None] > y
    return torch.where(chosen & (error.detach() < 1), error.abs(), 0.0).mean()


@case_of(regressed)
def huber_loss_by_hand_of_one_shape(out, y):
    error = out.squeeze(-1) - y
    return torch.where(error.abs() < 1, 0.5 * error**2, error.abs() - 0.5).mean()


@losses(lambda: (nn.Linear(4, 3), torch.tensor([0.1, 0.5, 0.9])))
def quantiles_against_their_target(model, levels):
    x = torch.randn(16, 4)
    gap = x.sum(1).view(-1, 1) - model(x)
    return torch.maximum(levels * gap, (levels - 1.0) * gap).mean()


@losses(lambda: (nn.Linear(4, 3), torch.randn(16, 3)))
def all_distances_to_as_many_centers_as_rows(model, centers):
    """The new dimension is in the line of the difference."""
    error = model(torch.randn(16, 4)) - centers[:, None]
    return error.square().mean()


def a_number_for_each_class():
    torch.manual_seed(0)
    model, middle = nn.Linear(4, 3), torch.tensor([0.1, 0.5, 0.9])
    return lambda: (model(torch.randn(16, 4)) - middle).square().mean().backward()


def the_worst_of_all_pairs():
    """The largest of all is no element."""
    return regressed(lambda out, y: (out.squeeze(-1) - y).abs().max())


@losses(lambda: nn.Linear(4, 1))
def values_clipped_in_one_shape(model):
    x = torch.randn(16, 4)
    returns, before = x.sum(1, keepdim=True), torch.zeros(16, 1)
    values = model(x)
    model.zero_grad()
    clipped = before + (values - before).clamp(-0.2, 0.2)
    return torch.max((returns - values) ** 2, (returns - clipped) ** 2).mean()


def weights_of_samples_as_a_column():
    weights = torch.rand(16, 1)
    return regressed(lambda out, y: (F.mse_loss(out, y.view(-1, 1), reduction="none") * weights).mean())


def products_of_all_pairs_cut_off():
    weights = torch.rand(16)
    return regressed(
        lambda out, y: (F.mse_loss(out, y.view(-1, 1), reduction="none") * weights - 0.1).relu().mean()
    )


def scores_of_a_row_times_another():
    scores = torch.rand(16)
    return regressed(lambda out, y: (out * scores).mean())


def losses_divided_by_a_row_of_their_own():
    chances = torch.rand(16) + 0.1
    return regressed(
        lambda out, y: (F.mse_loss(out.squeeze(-1), y, reduction="none") / chances).mean()
    )


def a_column_divided_by_losses():
    scale = torch.rand(16, 1)
    return regressed(
        lambda out, y: (scale / (F.mse_loss(out.squeeze(-1), y, reduction="none") + 1)).mean()
    )
