import copy

import torch
from torch import nn

from tests.rules.cfg012.fires import _taught
from tests.rules.programs import trained_once


def _body(**more):
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, **more), nn.ReLU())


def _trained(body, also=(), before=lambda: None):
    head = nn.Linear(8, 1)
    model = nn.Sequential(body, head)
    optimizer = torch.optim.SGD([*head.parameters(), *also], lr=0.1)

    def step():
        before()
        trained_once(model, optimizer, torch.randn(16, 8) + 1)

    return step


def in_eval_mode():
    return _trained(_body().requires_grad_(False).eval())


def trained_with_the_rest():
    body = _body()
    return _trained(body, body.parameters())


def without_running_statistics():
    return _trained(_body(track_running_stats=False).requires_grad_(False))


def without_weights_of_its_own():
    body = _body(affine=False)
    return _trained(body, body.parameters())


def only_the_norm_itself_is_frozen():
    body = _body()
    body[1].requires_grad_(False)
    return _trained(body, body[0].parameters())


def unfrozen_after_some_steps():
    body, count = _body().requires_grad_(False), [0]

    def before():
        count[0] += 1
        body.requires_grad_(count[0] > 5)

    return _trained(body, body.parameters(), before)


def adapters_in_a_frozen_network():
    norm = nn.BatchNorm1d(8).requires_grad_(False).eval()
    return _trained(nn.Sequential(nn.Linear(8, 8), norm))


def a_discriminator_while_the_generator_steps():
    maker, judge = _body(), nn.Sequential(_body(), nn.Linear(8, 1))
    one, two = (torch.optim.Adam(each.parameters()) for each in (maker, judge))

    def step():
        judge.requires_grad_(True)
        trained_once(judge, two, maker(torch.randn(16, 8)).detach())
        judge.requires_grad_(False)
        trained_once(judge, one, maker(torch.randn(16, 8)))

    return step


def a_mean_teacher():
    student = _body()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

    def step():
        x = torch.randn(16, 8)
        optimizer.zero_grad()
        (student(x) - teacher(x) - 1).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(teacher.parameters(), student.parameters(), strict=True):
                old.lerp_(new, 0.1)

    return step


def a_teacher_put_back_into_eval_mode__no_note():
    return _taught(lambda both: both.train()["teacher"].eval())


def a_teacher_that_drops_on_purpose__no_note():
    return _taught(lambda both: both["teacher"].train())


def a_teacher_that_was_never_in_eval_mode__no_note():
    return _taught(lambda both: both.train(), rest=lambda teacher: teacher)


def a_teacher_that_follows_its_student__no_note():
    def follow(teacher):
        with torch.no_grad():
            for each in teacher.parameters():
                each.add_(0.01)

    return _taught(lambda both: both.train(), follow)


def all_of_it_was_in_eval_mode__no_note():
    return _taught(lambda both: both.eval().train(), rest=lambda teacher: teacher)
