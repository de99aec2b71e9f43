import itertools
import math

import torch
from torch import nn

from tests.rules.programs import behind_a_backward, looked_at
from tests.timeline.kineto import text, training


def inverse_on_the_device__rehearsal():
    model = nn.Linear(8, 4).cuda()

    def step():
        matrices = model(torch.ones(4, 8, device="cuda")).view(4, 2, 2)
        checked = (matrices @ matrices.mT + torch.eye(2, device="cuda")).inverse()  # SYNC001
        checked.square().mean().backward()

    return step


def float_and_int_of_a_metric__rehearsal():
    metrics = {}

    def look(out):
        metrics["mean"] = float(out.mean())  # SYNC001
        metrics["first"] = int(out.argmax())  # SYNC001

    return looked_at(look, 3)


def formatted_into_a_message__rehearsal():
    messages = []
    return behind_a_backward(lambda loss: messages.append(f"loss {loss:.3f}"), "cuda")  # SYNC001


def gradient_norms_of_every_parameter__rehearsal():
    model, row = nn.Sequential(nn.Linear(8, 8, device="cuda"), nn.Linear(8, 1, device="cuda")), {}

    def step():
        model(torch.ones(4, 8, device="cuda")).mean().backward()
        for name, p in model.named_parameters():
            row[name] = p.grad.norm(2).item()  # SYNC001

    return step


def number_read_to_decide__rehearsal():
    best = [math.inf]

    def after(loss):
        if loss.item() < best[0]:  # SYNC001
            best[0] = 0.5

    return behind_a_backward(after, "cuda")


def loss_read_on_each_step_of_a_trace__trace():
    return text(training(3))


def rollout_in_every_sixteenth_step__rehearsal():
    policy, done, states = nn.Linear(8, 4, device="cuda"), itertools.count(), torch.ones(64, 8, device="cuda")

    def step():
        if next(done) % 16 == 0:
            with torch.no_grad():
                for state in states:
                    policy(state).argmax().item()  # SYNC001
        policy(states[0]).square().mean().backward()

    return step


def evaluation_in_every_fifth_step__rehearsal():
    model, done = nn.Linear(8, 1, device="cuda"), itertools.count()
    batches = [torch.ones(64, 8, device="cuda") for _ in range(16)]

    def step():
        model(batches[0]).mean().backward()
        right = 0.0
        if next(done) % 5 == 4:
            with torch.no_grad():
                for batch in batches:
                    right += (model(batch) > 0.5).float().mean().item()  # SYNC001
        return right

    return step
