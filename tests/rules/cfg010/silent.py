import copy

import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import numbered, optimized, trained_by, trained_once


def _dropping():
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 3))


def _normed():
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def _every(times, model, evaluate):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(number):
        trained_once(model, optimizer, torch.rand(4, 8))
        if number % times == 0:
            evaluate()

    return numbered(step)


LABELS = torch.tensor([0, 1, 2, 0])


def evaluated_in_eval_mode():
    model, held_out = _normed(), torch.rand(4, 8)

    @torch.no_grad()
    def evaluate():
        model.eval()
        loss = F.cross_entropy(model(held_out), LABELS)
        model.train()
        return loss

    return _every(4, model, evaluate)


def monte_carlo_dropout():
    model, held_out = _dropping(), torch.rand(4, 8)

    @torch.no_grad()
    def evaluate():
        drawn = torch.stack([model(held_out).softmax(-1) for _ in range(4)])
        return (drawn.mean(0).argmax(1) == LABELS).float().mean()

    return _every(4, model, evaluate)


def dropout_layers_put_back_on_purpose():
    model, held_out = _dropping(), torch.rand(4, 8)

    @torch.no_grad()
    def evaluate():
        model.train()
        return F.cross_entropy(model(held_out), LABELS)

    return _every(4, model, evaluate)


def statistics_of_batch_norm_made_anew():
    model, batches = _normed(), [torch.rand(4, 8) for _ in range(3)]

    @torch.no_grad()
    def renew():
        for x in batches:
            model(x)

    return _every(4, model, renew)


def samples_of_a_generator_for_the_log():
    model, noise = _normed(), torch.rand(4, 8)
    kept = []

    def sample():
        with torch.no_grad():
            kept[:] = [model(noise)]

    return _every(4, model, sample)


def average_of_weights_in_train_mode():
    model, held_out = _normed(), torch.rand(4, 8)
    average = copy.deepcopy(model)

    @torch.no_grad()
    def evaluate():
        return F.cross_entropy(average(held_out), LABELS)

    return _every(4, model, evaluate)


def nothing_in_it_acts_otherwise():
    model, held_out = nn.Sequential(nn.Linear(8, 3), nn.Dropout(0.0)), torch.rand(4, 8)

    @torch.no_grad()
    def evaluate():
        return F.cross_entropy(model(held_out), LABELS)

    return _every(4, model, evaluate)


def targets_of_another_forward():
    model, optimizer = optimized(_dropping())

    def step(number):
        if number % 4:
            return trained_once(model, optimizer, torch.rand(4, 8))
        x, x_test = torch.rand(4, 8), torch.rand(4, 8)
        with torch.no_grad():
            pseudo = model(x_test).softmax(-1)
        optimizer.zero_grad()
        F.cross_entropy(model(x), pseudo).backward()
        optimizer.step()

    return numbered(step)


def accuracy_on_the_batch_that_is_trained_on():
    model, optimizer = optimized(_dropping())

    def step(number):
        x = torch.rand(4, 8)
        optimizer.zero_grad()
        F.cross_entropy(model(x), LABELS).backward()
        optimizer.step()
        if number % 4 == 0:
            with torch.no_grad():
                return (model(x).argmax(1) == LABELS).float().mean()

    return numbered(step)


def hard_samples_chosen_by_their_loss():
    model, optimizer = optimized(_dropping())
    pool, labels = torch.rand(16, 8), torch.zeros(16, dtype=torch.long)

    def step(number):
        if number % 4:
            return trained_once(model, optimizer, torch.rand(4, 8))
        with torch.no_grad():
            losses = F.cross_entropy(model(pool), labels, reduction="none")
            chosen = losses.topk(4).indices
        return trained_once(model, optimizer, pool[chosen])

    return numbered(step)


def policy_that_acts_on_each_step():
    policy = _dropping()

    def loss():
        with torch.no_grad():
            action = policy(torch.rand(4, 8)).argmax(-1)
            reward = (action == LABELS).float()
        chosen = policy(torch.rand(4, 8)).log_softmax(-1).gather(1, action[:, None])
        return (-chosen[:, 0] * reward).mean()

    return trained_by(policy, loss)


def detached_and_not_evaluated():
    maker, judge = _normed(), nn.Linear(3, 1)
    optimizers = [torch.optim.SGD(each.parameters(), lr=1e-3) for each in (maker, judge)]
    real = torch.ones(4, 1)

    def step():
        with torch.no_grad():
            fake = maker(torch.rand(4, 8))
        optimizers[1].zero_grad()
        F.binary_cross_entropy_with_logits(judge(fake), real).backward()
        optimizers[1].step()
        trained_once(maker, optimizers[0], torch.rand(4, 8))

    return step


def state_that_a_model_returns_beside_its_result():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.drop = nn.Linear(8, 8), nn.Dropout(0.1)

        def forward(self, x, state=None):
            out = self.drop(self.cell(x if state is None else x + state))
            return out, out.detach()

    model, optimizer = optimized(Recurrent())

    @torch.no_grad()
    def warm(x, state):
        _, state = model(x, state)
        return state

    def step(number):
        optimizer.zero_grad()
        model(torch.rand(4, 8))[0].square().mean().backward()
        optimizer.step()
        if number % 4 == 0:
            warm(torch.rand(4, 8), torch.zeros(8))

    return numbered(step)
