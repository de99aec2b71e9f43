import copy

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.rules.opt019.fires import DECAY, averaged, _kept, _pairs
from tests.rules.programs import trained_once


@averaged
def averages_in_all_spellings(model, average):
    for old, new in _pairs(model, average):
        old.lerp_(new, 1 - DECAY)
        old.data.mul_(DECAY).add_(new.data, alpha=1 - DECAY)
        old.copy_(DECAY * old + (1 - DECAY) * new)
        old -= (1 - DECAY) * (old - new)
        old.copy_(torch.lerp(new, old, DECAY))
    torch._foreach_lerp_([*average.parameters()], [*model.parameters()], 1 - DECAY)


@_kept(lambda model: {name: p.detach().clone() for name, p in model.named_parameters()})
def average_in_a_dictionary(model, shadow):
    for name, p in model.named_parameters():
        shadow[name] = ((1 - DECAY) * p.data + DECAY * shadow[name]).clone()


@_kept(lambda model: AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY)))
def averaged_model_with_decay(model, average):
    average.update_parameters(model)


@_kept(AveragedModel)
def averaged_model_of_equal_weights(model, average):
    average.update_parameters(model)


@averaged
def target_network_with_hard_and_soft_updates(model, average):
    average.load_state_dict(model.state_dict())
    for old, new in _pairs(model, average):
        old.lerp_(new, 1.0)
        old.lerp_(new, 0.005)


@_kept(lambda model: (copy.deepcopy(model), [0]))
def decay_that_warms_up(model, made):
    average, steps = made
    steps[0] += 1
    for old, new in _pairs(model, average):
        old.lerp_(new, 1 - min(0.9999, (1 + steps[0]) / (1000 + steps[0])))


@averaged
def lookahead(model, slow):
    for old, new in _pairs(model, slow):
        old.add_(new - old, alpha=0.5)
        new.copy_(old)


@averaged
def weights_pulled_to_the_start(model, start):
    for old, new in _pairs(model, start):
        new.lerp_(old, 0.001)
        new.data = 0.999 * new.data + 0.001 * old


@averaged
def decay_of_weights_by_hand(model, start):
    for p in model.parameters():
        p.mul_(1.0).add_(p, alpha=-0.01)
        p.sub_(p, alpha=0.0)
        p.copy_(p * 1.0)


@_kept(lambda model: nn.Sequential(model[0], model[1], copy.deepcopy(model[2])))
def teacher_that_shares_the_first_layer(model, teacher):
    for old, new in _pairs(model, teacher):
        old.lerp_(new, 1 - DECAY)


def statistics_and_codebook():
    """Averages of what no optimizer holds."""
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=0.99), nn.Linear(8, 8))
    codes, moments = torch.randn(8, 8), torch.zeros(8, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step():
        trained_once(model, optimizer, torch.randn(16, 8))
        with torch.no_grad():
            codes.lerp_(model(torch.randn(8, 8)), 0.99)
            moments.mul_(0.01).add_(model[0].weight.grad, alpha=0.99)

    return step
