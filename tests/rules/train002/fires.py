import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import case_of, classified, losses


@case_of(classified, lambda: nn.CrossEntropyLoss())
def softmax_in_the_step(criterion, out, y):
    probabilities = torch.softmax(out, dim=-1)
    return criterion(probabilities, y)  # TRAIN002


@case_of(classified)
def softmax_of_a_sequence_in_another_form(out, y):
    shares = out.view(4, 4, 5).softmax(-1)
    return F.cross_entropy(shares.view(-1, 5), y.reshape(-1))  # TRAIN002


@case_of(classified)
def cross_entropy_by_hand(out, y):
    logarithms = F.log_softmax(F.softmax(out, 1), 1)  # TRAIN002
    return -logarithms.gather(1, y[:, None]).mean()


def logarithm_left_out():
    return classified(lambda out, y: F.nll_loss(F.softmax(out, dim=1), y))  # TRAIN002


def scores_for_nll():
    return classified(lambda out, y: nn.NLLLoss()(out, y))  # TRAIN002


@case_of(classified)
def probabilities_for_kl_div(out, y):
    wanted = torch.full((16, 5), 0.2)
    return F.kl_div(out.softmax(-1), wanted, reduction="batchmean")  # TRAIN002


def inside_the_model():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 5)

        def forward(self, x, y):
            shares = self.head(x).softmax(-1)
            return F.cross_entropy(shares, y)  # TRAIN002

    torch.manual_seed(0)
    model = Model()

    def step():
        x = torch.randn(16, 4)
        model.zero_grad()
        model(x, (x.sum(1) > 0).long()).backward()

    return step


@losses(lambda: torch.nn.Linear(4, 5))
def probabilities_that_are_floats_already(model):
    """``float`` gives back the tensor that it was given."""
    x = torch.randn(16, 4)
    shares = model(x).softmax(-1).float()
    return torch.nn.functional.cross_entropy(shares, (x.sum(1) > 0).long())  # TRAIN002


@losses(lambda: (nn.Linear(4, 6), nn.BCEWithLogitsLoss()))
def one_part_of_what_a_detector_joined(model, criterion):
    x = torch.randn(16, 4)
    raw = model(x)
    out = torch.cat([raw[:, :4].exp(), raw[:, 4:5].sigmoid(), raw[:, 5:].sigmoid()], 1)
    model.zero_grad()
    boxes = (out[:, :4] - 1.0).abs().mean()
    return boxes + criterion(out[:, 5:], (x[:, :1] > 0).float())  # TRAIN002
