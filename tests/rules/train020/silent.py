import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.train020.fires import _Agent


def a_copy_that_is_loaded_and_averaged():
    agent, count = _Agent(copy.deepcopy), [0]

    def step():
        agent.learn()
        count[0] += 1
        with torch.no_grad():
            for old, new in zip(
                agent.target_net.parameters(), agent.policy_net.parameters(), strict=True
            ):
                old.lerp_(new, 0.01)
        if count[0] % 4 == 0:
            agent.target_net.load_state_dict(agent.policy_net.state_dict())

    return step


def _trained(wanted, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        target = wanted()
        optimizer.zero_grad()
        F.mse_loss(model(torch.randn(4, 8)), target).backward()
        optimizer.step()

    return step


def pseudo_labels_of_the_model_itself():
    model = nn.Linear(8, 2)
    net = model

    def wanted():
        with torch.no_grad():
            return net(torch.ones(4, 8))

    return _trained(wanted, model)


def a_raw_module_beside_its_wrapper():
    raw = nn.Linear(8, 2)
    model = nn.Sequential(raw)

    def wanted():
        with torch.no_grad():
            return raw(torch.ones(4, 8))

    return _trained(wanted, model)


def an_average_of_weights():
    model = nn.Linear(8, 2)
    teacher = torch.optim.swa_utils.AveragedModel(model)

    def wanted():
        teacher.update_parameters(model)
        with torch.no_grad():
            return teacher(torch.ones(4, 8))

    return _trained(wanted, model)


def a_teacher_that_is_trained_too():
    teacher, student = nn.Linear(8, 2), nn.Linear(8, 2)

    def wanted():
        with torch.no_grad():
            return teacher(torch.ones(4, 8))

    one, other = _trained(wanted, student), _trained(lambda: torch.zeros(4, 2), teacher)
    return lambda: (one(), other())


def one_encoder_of_two_inputs():
    source_encoder = nn.Linear(8, 2)
    target_encoder = source_encoder
    optimizer = torch.optim.SGD(source_encoder.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        F.mse_loss(source_encoder(torch.ones(4, 8)), target_encoder(torch.randn(4, 8))).backward()
        optimizer.step()
        with torch.no_grad():
            return target_encoder(torch.ones(4, 8))

    return step
