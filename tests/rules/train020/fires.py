import copy

import torch
from torch import nn
from torch.nn import functional as F


class _Agent:
    def __init__(self, of):
        self.policy_net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
        self.target_net = of(self.policy_net)
        self.optimizer = torch.optim.Adam(self.policy_net.parameters(), lr=1e-3)

    @torch.no_grad()
    def wanted(self, after):
        return 1 + 0.9 * self.target_net(after).amax(1)

    def learn(self):
        wanted = self.wanted(torch.randn(4, 8))
        self.optimizer.zero_grad()
        F.mse_loss(self.policy_net(torch.randn(4, 8))[:, 0], wanted).backward()
        self.optimizer.step()


def attributes_of_an_agent():
    class Agent(_Agent):
        @torch.no_grad()
        def wanted(self, after):
            return 1 + 0.9 * self.target_net(after).amax(1)  # TRAIN020

    return Agent(lambda net: net).learn


def updated_by_assignment():
    student = nn.Linear(8, 2)
    teacher, count = copy.deepcopy(student), [0]
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)

    def step():
        nonlocal teacher
        with torch.no_grad():
            wanted = teacher(torch.ones(4, 8))
        optimizer.zero_grad()
        F.mse_loss(student(torch.randn(4, 8)), wanted).backward()
        optimizer.step()
        count[0] += 1
        if count[0] == 2:
            teacher = student  # TRAIN020

    return step


def of_a_gpu__rehearsal():
    online = nn.Linear(8, 2).cuda()
    target = online  # TRAIN020
    optimizer = torch.optim.SGD(online.parameters(), lr=0.1)

    def step():
        with torch.no_grad():
            wanted = target(torch.ones(4, 8, device="cuda"))
        optimizer.zero_grad()
        F.mse_loss(online(torch.randn(4, 8, device="cuda")), wanted).backward()
        optimizer.step()

    return step
