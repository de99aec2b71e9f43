import torch
from torch import nn


def last_loss_overwritten_each_step():
    model, state = nn.Linear(8, 1), {}

    def step():
        state["loss"] = model(torch.ones(4, 8)).square().mean()
        state["loss"].backward()

    return step


def micro_batch_losses_within_the_step():
    model = nn.Linear(8, 1)

    def step():
        losses = []
        for _ in range(4):
            loss = model(torch.ones(4, 8)).square().mean()
            loss.backward()
            losses.append(loss)
        return torch.stack(losses).sum().detach()

    return step


def hidden_state_detached_between_steps():
    rnn, state = nn.GRU(4, 4), {"hidden": torch.zeros(1, 2, 4)}

    def step():
        out, hidden = rnn(torch.ones(3, 2, 4), state["hidden"])
        out.mean().backward()
        state["hidden"] = hidden.detach()

    return step
