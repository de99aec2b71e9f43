import copy

import torch
from torch import nn

from tests.rules.programs import numbered, optimized, trained_by, trained_once, trained_with


def batch_that_wants_a_gradient_for_an_attack():
    model, optimizer = optimized(nn.Linear(8, 1))

    def step():
        x = torch.ones(4, 8, requires_grad=True)
        model(x).square().mean().backward()
        trained_once(model, optimizer, (x + 0.1 * x.grad.sign()).detach())

    return step


def gradient_penalty_on_columns_of_fixed_points():
    model, points = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), torch.rand(16, 2, requires_grad=True)

    def loss():
        x, t = points[:, :1], points[:, 1:]
        u = model(torch.cat([x, t], 1))
        (speed,) = torch.autograd.grad(u.sum(), t, create_graph=True)
        return (speed - u).square().mean()

    return trained_with(torch.optim.Adam(model.parameters(), lr=1e-3), loss)


def perturbation_that_the_program_moves_itself():
    model, delta = nn.Linear(8, 1), torch.zeros(4, 8, requires_grad=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8) + delta).square().mean().backward()
        delta.data += 0.01 * delta.grad.sign()
        delta.grad.zero_()
        optimizer.step()

    return step


def frozen_body():
    body, head = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 1)
    return trained_by(head, lambda: head(body(torch.ones(4, 8))).square().mean())


def teacher_that_follows_by_averaging():
    student = nn.Linear(8, 1)
    teacher = copy.deepcopy(student)
    optimizer = torch.optim.SGD(student.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        x = torch.ones(4, 8)
        (student(x) - teacher(x) + 1).square().mean().backward()  # GRAPH003
        optimizer.step()
        with torch.no_grad():
            for own, other in zip(teacher.parameters(), student.parameters(), strict=True):
                own.lerp_(other, 0.1)

    return step


def latent_code_optimised_through_a_frozen_generator():
    generator = nn.Linear(8, 8).requires_grad_(False)
    code = torch.zeros(4, 8, requires_grad=True)
    return trained_with(torch.optim.Adam([code], lr=1e-2), lambda: (generator(code) - 1).square().mean())


def functional_call_with_parameters_of_its_own():
    model = nn.Linear(8, 1)
    weights = {name: value.detach().clone().requires_grad_() for name, value in model.named_parameters()}

    def loss():
        return torch.func.functional_call(model, weights, (torch.ones(4, 8),)).square().mean()

    return trained_with(torch.optim.SGD(weights.values(), lr=1e-3), loss)


def gradients_of_a_function_transform():
    model = nn.Linear(8, 1)
    probe = torch.ones(8, requires_grad=True)

    def loss():
        sensitivity = torch.func.grad(lambda x: model(x).sum())(probe.detach())
        return model(torch.ones(4, 8)).square().mean() + sensitivity.detach().sum()

    return trained_by(model, loss)


def judge_of_a_gan_fed_by_the_makers_loss():
    maker, judge = nn.Linear(8, 8), nn.Linear(8, 1)
    one, other = torch.optim.SGD(maker.parameters(), lr=1e-3), torch.optim.SGD(judge.parameters(), lr=1e-3)

    def step():
        trained_once(judge, one, maker(torch.ones(4, 8)))
        trained_once(judge, other, maker(torch.ones(4, 8)).detach())

    return step


def optimizer_that_steps_after_many_micro_batches():
    model, slow = nn.Linear(8, 1), nn.Linear(8, 8)
    often = torch.optim.SGD(model.parameters(), lr=1e-3)
    seldom = torch.optim.SGD(slow.parameters(), lr=1e-3)

    def step(number):
        trained_once(model, often, slow(torch.ones(4, 8)))
        if number % 1000 == 0:
            seldom.step()

    return numbered(step)


def weights_updated_by_hand():
    model, scale = nn.Linear(8, 1), torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        (scale * model(torch.ones(4, 8))).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            scale.sub_(0.1 * scale.grad)
            scale.grad = None

    return step


def a_teacher_in_eval_mode_is_graph003s():
    teacher, model = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).eval(), nn.Linear(8, 8)

    def loss():
        x = torch.ones(4, 8)
        return (model(x) - teacher(x)).square().mean()  # GRAPH003

    return trained_by(model, loss)
