import torch
from torch import nn

from tests.rules.programs import trained_on_noise

BACKEND = "eager"


def lengths_that_vary_and_may():
    net = nn.Linear(16, 16)
    compiled = torch.compile(net, backend=BACKEND)
    return trained_on_noise(compiled, net.parameters(), lambda taken: torch.randn(4, 3 + taken % 4, 16))


def a_shorter_last_batch():
    net = nn.Linear(16, 16)
    compiled = torch.compile(net, backend=BACKEND, dynamic=False)
    return trained_on_noise(compiled, net.parameters(), lambda taken: torch.randn(2 if taken % 4 == 3 else 4, 16))


def training_and_evaluation():
    net = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.1))
    compiled = torch.compile(net, backend=BACKEND)

    def batches(taken):
        net.train(taken % 3 != 0)
        return torch.randn(4, 16)

    return trained_on_noise(compiled, net.parameters(), batches)


def a_frozen_teacher_of_the_same_class():
    """One frame for both, entries of both grad modes: each is compiled once more for lengths."""
    teacher = nn.Sequential(nn.Linear(16, 16), nn.ReLU()).requires_grad_(False)
    student = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    wise = torch.compile(teacher, backend=BACKEND)
    learning = torch.compile(student, backend=BACKEND)

    def forward(x):
        with torch.no_grad():
            wanted = wise(x)
        return learning(x) - wanted

    return trained_on_noise(
        forward, student.parameters(), lambda n: torch.randn(7 if n % 8 == 7 else 16, 16)
    )


def layers_of_one_class():
    net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 8))
    for number in range(4):
        net[number] = torch.compile(net[number], backend=BACKEND)

    return trained_on_noise(net, net.parameters())
