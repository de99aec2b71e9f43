import torch
from torch import nn

from tests.rules.programs import trained_on_noise

BACKEND = "eager"


def compiled_and_called():
    net = nn.Linear(16, 16)
    return trained_on_noise(torch.compile(net, backend=BACKEND), net.parameters())


def compiled_in_place():
    class _Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(16, 16)

        def forward(self, x):
            return self.a(x)

    net = _Net()
    net.compile(backend=BACKEND)
    return trained_on_noise(net, net.parameters())


def copy_for_evaluation_that_has_not_run_yet():
    net = nn.Linear(16, 16)
    evaluated = torch.compile(net, backend=BACKEND)
    step = trained_on_noise(net, net.parameters())

    def evaluate(x):
        with torch.no_grad():
            return evaluated(x)

    step.evaluate = evaluate
    return step


def handed_on_for_an_evaluation():
    def built():
        raw = nn.Linear(16, 16)
        swift = torch.compile(raw, backend=BACKEND)
        return raw, swift

    raw, fast_one = built()
    step = trained_on_noise(raw, raw.parameters())
    step.evaluate = lambda x: fast_one(x)
    return step


def layers_inside_a_compiled_whole():
    """The outer graph takes them in: the inner ones never run by themselves."""
    net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    net[0].compile(backend=BACKEND)
    return trained_on_noise(torch.compile(net, backend=BACKEND), net.parameters())


def called_now_and_then():
    net, taken = nn.Linear(16, 16), [0]
    compiled = torch.compile(net, backend=BACKEND)

    def forward(x):
        taken[0] += 1
        return compiled(x) if taken[0] % 10 == 1 else net(x)

    return trained_on_noise(forward, net.parameters())


def switched_off_by_a_flag():
    net = nn.Linear(16, 16)
    torch.compile(net, backend=BACKEND, disable=True)
    return trained_on_noise(net, net.parameters())


def tried_once_for_its_result():
    net = nn.Linear(16, 16)
    torch.compile(net, backend=BACKEND)(torch.randn(4, 16))
    return trained_on_noise(net, net.parameters())


def frozen_teacher_kept_for_later():
    net, teacher = nn.Linear(16, 16), nn.Linear(16, 16).requires_grad_(False)
    step = trained_on_noise(net, net.parameters())
    teacher = torch.compile(teacher, backend=BACKEND)
    step.teacher = teacher
    return step


def no_compiler_at_all():
    net = nn.Linear(16, 16)
    return trained_on_noise(net, net.parameters())
