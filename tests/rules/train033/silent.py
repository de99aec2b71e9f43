import torch
from torch.nn import functional as F

from tests.rules.programs import losses
from tests.rules.train033.fires import _batch, _dice, _net


def _wanted(mask):
    return F.one_hot(mask.clamp(max=2), 3).permute(0, 3, 1, 2).float()


def _beside(part):
    @losses(_net)
    def case(net):
        x, mask = _batch()
        scores = net(x)
        return F.cross_entropy(scores, mask, ignore_index=255) + part(scores, mask)

    return case


@_beside
def dice_of_what_is_known(scores, mask):
    valid = (mask != 255)[:, None].float()
    return _dice(scores.softmax(1) * valid, _wanted(mask) * valid)


@_beside
def an_error_that_is_masked(scores, mask):
    valid = (mask != 255)[:, None]
    error = (scores.softmax(1) - _wanted(mask)).square()
    return (error * valid).sum() / valid.sum()


@_beside
def dice_of_picked_positions(scores, mask):
    valid = mask != 255
    probs, wanted = scores.softmax(1).movedim(1, -1)[valid], F.one_hot(mask[valid], 3)
    return _dice(probs, wanted.float(), 0)


@_beside
def entropy_where_nothing_is_known(scores, mask):
    entropy = -(scores.softmax(1) * scores.log_softmax(1)).sum(1)
    return (entropy * (mask == 255)).mean()


@_beside
def other_weights_where_nothing_is_known(scores, mask):
    weights = torch.where(mask == 255, 0.1, 1.0)
    return (scores.square().mean(1) * weights).mean()


@_beside
def smooth_everywhere(scores, mask):
    return (scores.softmax(1).diff(dim=-1)).abs().mean()


@_beside
def chances_that_are_masked(scores, mask):
    chance = scores.softmax(1).gather(1, mask.clamp(max=2)[:, None])[:, 0]
    return ((1 - chance) * (mask != 255)).mean()


@losses(_net)
def nothing_is_ignored(net):
    x, mask = _batch(void=2)
    scores = net(x)
    dice = _dice(scores.softmax(1), _wanted(mask))
    return F.cross_entropy(scores, mask, ignore_index=255) + dice
