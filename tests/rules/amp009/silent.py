import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import trained_by


def cast_up_before_the_loss():
    model, target = nn.Linear(8, 4).half(), torch.tensor([0, 1, 2, 3])
    return trained_by(model, lambda: F.cross_entropy(model(torch.ones(4, 8).half()).float(), target))


def cross_entropy_that_autocast_moves_to_float32():
    model, target = nn.Linear(8, 4), torch.tensor([0, 1, 2, 3])

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            return F.cross_entropy(model(torch.ones(4, 8)), target)

    return trained_by(model, loss)


def softmax_of_attention_in_half():
    model, out = nn.Linear(8, 8), nn.Linear(8, 1)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            x = model(torch.ones(4, 8))
            mixed = torch.softmax(x @ x.t(), -1) @ x
            return out(mixed).float().mean()

    return trained_by(model, loss)


def exp_inside_the_model_before_its_last_product():
    model, out = nn.Linear(8, 8), nn.Linear(8, 1)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            gate = torch.exp(-model(torch.ones(4, 8)).abs())
            return out(gate).float().square().mean()

    return trained_by(model, loss)


def metric_that_never_reaches_the_loss():
    model = nn.Linear(8, 1)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            score = model(torch.ones(4, 8))
            torch.log(torch.sigmoid(score.detach()) + 1e-3).mean()
            torch.log(torch.sigmoid(score) + 1e-3).mean()
        return score.float().square().mean()

    return trained_by(model, loss)


def loss_in_float32_beside_a_model_in_half():
    model = nn.Linear(8, 1)

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            score = model(torch.ones(4, 8))
        with torch.autocast("cpu", enabled=False):
            return -F.logsigmoid(score.float()).mean()

    return trained_by(model, loss)


def log_that_autocast_moves_to_float32_on_a_gpu__rehearsal():
    model, x = nn.Linear(8, 1).cuda(), torch.ones(4, 8, device="cuda")

    def loss():
        with torch.autocast("cuda", dtype=torch.float16):
            return -torch.log(torch.sigmoid(model(x))).mean()

    return trained_by(model, loss)


def autocast_lets_the_log_softmax_of_cuda_work_in_float32__cuda():
    model = nn.Linear(64, 100).cuda()

    def loss_of():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            likely = F.log_softmax(model(torch.randn(8, 64, device="cuda")), -1)
            loss = F.nll_loss(likely, torch.zeros(8, dtype=torch.long, device="cuda"))
        return loss

    return trained_by(model, loss_of)


def cross_entropy_under_cudas_autocast_rounds_its_log_softmax__cuda():
    """ATen asks for the logits' own type, so autocast leaves it (cross_entropy_loss in LossNLL.cpp)."""
    model = nn.Linear(64, 100).cuda()

    def loss_of():
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(torch.randn(8, 64, device="cuda"))
            loss = F.cross_entropy(out, torch.zeros(8, dtype=torch.long, device="cuda"))
        return loss

    return trained_by(model, loss_of)


def logsigmoid_under_autocast_on_a_gpu__rehearsal():
    model, x = nn.Linear(8, 1).cuda(), torch.ones(4, 8, device="cuda")

    def loss():
        with torch.autocast("cuda", dtype=torch.float16):
            return -F.logsigmoid(model(x)).mean()

    return trained_by(model, loss)


def log_softmax_that_autocast_leaves_alone_on_the_cpu():
    model, target = nn.Linear(8, 4), torch.tensor([0, 1, 2, 3])

    def loss():
        with torch.autocast("cpu", dtype=torch.float16):
            rows = torch.log_softmax(model(torch.ones(4, 8)), -1)
            return F.nll_loss(rows, target)

    return trained_by(model, loss)
