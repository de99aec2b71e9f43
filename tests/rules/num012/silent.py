import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import trained_by, trained_with


def the_same_number_in_bfloat16_which_holds_it():
    model = nn.Linear(8, 1)

    def loss():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return -torch.log(torch.sigmoid(model(torch.ones(4, 8))) + 1e-8).float().mean()

    return trained_by(model, loss)


def subnormal_in_half_and_still_not_zero():
    model = nn.Linear(8, 1)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            return -torch.log(torch.sigmoid(model(torch.ones(4, 8))) + 1e-7).float().mean()  # AMP009

    return trained_by(model, loss)


def cast_up_before_it_is_added():
    model = nn.Linear(8, 1)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            score = torch.sigmoid(model(torch.ones(4, 8)))
        return -torch.log(score.float() + 1e-8).mean()

    return trained_by(model, loss)


def layer_norm_that_computes_in_float32_inside():
    model, norm = nn.Linear(8, 4), nn.LayerNorm(4, eps=1e-12)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            return norm(model(torch.ones(4, 8))).float().mean()

    return trained_by(model, loss)


def adam_with_float32_weights_under_autocast():
    model = nn.Linear(8, 4)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            return model(torch.ones(4, 8)).float().square().mean()

    return trained_with(torch.optim.Adam(model.parameters(), lr=1e-3), loss)


def small_rate_and_small_weight_of_a_term():
    model = nn.Linear(8, 4).half()

    def loss():
        rows = model(torch.ones(4, 8, dtype=torch.float16))
        return (rows.float().square().mean() + 1e-9 * rows.float().abs().mean()) * 1.0

    return trained_by(model, loss)


def zero_added_to_a_half():
    model = nn.Linear(8, 4).half()
    return trained_by(model, lambda: (model(torch.ones(4, 8, dtype=torch.float16)) + 0.0).float().mean())


def normalize_with_an_epsilon_that_half_can_hold():
    model = nn.Linear(8, 4).half()
    return trained_by(model, lambda: F.normalize(model(torch.ones(4, 8).half()), dim=-1, eps=1e-4).float().sum())


def mean_square_norm_with_the_usual_epsilon():
    model = nn.Linear(8, 4)

    def loss():
        x = model(torch.ones(4, 8))
        return (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)).sum()

    return trained_by(model, loss)


def log_forced_to_float32_by_autocast_after_a_cast__rehearsal():
    model = nn.Linear(8, 1).cuda()
    x = torch.ones(4, 8, device="cuda")

    def loss():
        with torch.autocast("cuda", dtype=torch.float16):
            score = torch.sigmoid(model(x).float())
            return -torch.log(score + 1e-8).mean()

    return trained_by(model, loss)


def lost_where_zero_does_no_harm():
    model = nn.Linear(8, 4).half()
    return trained_by(model, lambda: (model(torch.ones(4, 8).half()) + 1e-9).float().mean())
