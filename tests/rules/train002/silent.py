import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import case_of, classified, losses


def log_softmax_before_cross_entropy():
    """Twice is as once."""
    return classified(F.cross_entropy, nn.LogSoftmax(dim=1))


def log_softmax_before_nll():
    return classified(F.nll_loss, nn.LogSoftmax(dim=1))


def logarithm_of_softmax_before_nll():
    return classified(lambda out, y: F.nll_loss(torch.log(out.softmax(1) + 1e-8), y))


@case_of(classified)
def sigmoid_before_bce(out, y):
    return F.binary_cross_entropy(torch.sigmoid(out), F.one_hot(y, 5).float())


@case_of(classified, lambda: torch.randn(16, 5))
def distillation_with_temperature(teacher, out, y):
    soft = F.softmax(teacher / 2, dim=-1)
    kept = F.kl_div(F.log_softmax(out / 2, dim=-1), soft, reduction="batchmean")
    return kept + F.cross_entropy(out, y)


def targets_that_are_probabilities():
    return classified(lambda out, y: F.cross_entropy(out, out.detach().softmax(-1)))


def smoothed_labels():
    return classified(lambda out, y: F.cross_entropy(out, y, label_smoothing=0.1))


def attention_over_the_scores():
    return classified(lambda out, y: F.cross_entropy(out.softmax(-1) @ out.T @ out, y))


@case_of(classified)
def focal_loss(out, y):
    logarithms = F.log_softmax(out, 1)
    return F.nll_loss((1 - logarithms.exp()) ** 2 * logarithms, y)


def scaled_shares_as_scores():
    return classified(lambda out, y: F.cross_entropy(20 * out.softmax(-1), y))


@case_of(classified)
def mixture_of_two(out, y):
    mixed = 0.5 * out.softmax(-1) + 0.5 * out.flip(-1).softmax(-1)
    return F.nll_loss(mixed.log(), y)


@case_of(classified)
def entropy_bonus_beside(out, y):
    shares = out.softmax(-1)
    return F.cross_entropy(out, y) - 0.01 * (shares * shares.clamp_min(1e-8).log()).sum(1).mean()


@case_of(classified)
def softmax_for_a_metric(out, y):
    with torch.no_grad():
        F.cross_entropy(out.softmax(-1), y)
    return F.cross_entropy(out, y)


def softmax_over_the_rows():
    """It chooses between the rows, and no row is a distribution over classes."""
    return classified(lambda out, y: F.cross_entropy(out.softmax(0), y))


def nll_as_a_way_to_pick():
    return classified(lambda out, y: F.nll_loss(torch.tanh(out), y))


@losses(lambda: nn.Linear(4, 5))
def logarithms_for_ctc(model):
    out = model(torch.randn(3, 12, 4)).log_softmax(-1).transpose(0, 1)
    texts, sizes = torch.randint(1, 5, (3, 4)), torch.tensor([4, 3, 2])
    return F.ctc_loss(out, texts, torch.full((3,), 12), sizes)


@losses(lambda: nn.Linear(4, 3))
def another_part_of_what_was_joined(model):
    x = torch.randn(16, 4)
    raw = model(x)
    out = torch.cat([raw[:, :2].sigmoid(), raw[:, 2:]], 1)
    model.zero_grad()
    return F.binary_cross_entropy_with_logits(out[:, 2:], (x[:, :1] > 0).float())
