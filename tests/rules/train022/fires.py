import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import losses


@losses(lambda: nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)))
def error_squared_by_hand(critic):
    state, after, reward = torch.randn(16, 8), torch.randn(16, 8), torch.randn(16)
    error = reward + 0.97 * critic(after)[:, 0] - critic(state)[:, 0]  # TRAIN022
    return error.square().mean()


@losses(lambda: nn.Linear(8, 4))
def best_action(model):
    state, after, reward = torch.randn(16, 8), torch.randn(16, 8), torch.randn(16)
    action, going_on = torch.randint(4, (16, 1)), (torch.rand(16) > 0.2).float()
    best = model(after).max(1).values
    target = reward + best * (0.99 * going_on)  # TRAIN022
    return F.smooth_l1_loss(model(state).gather(1, action), target.unsqueeze(1))


@losses(lambda: (nn.Linear(8, 4), nn.Linear(8, 1)))
def advantage_with_gradients(policy, critic):
    state, returns = torch.randn(16, 8), torch.randn(16)
    chances = torch.distributions.Categorical(logits=policy(state))
    value = critic(state).squeeze(-1)
    advantage = returns - value  # TRAIN022
    loss = -(chances.log_prob(chances.sample()) * advantage).mean()
    return loss + 0.5 * F.mse_loss(value, returns)


@losses(lambda: (nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)))
def a_teacher_that_follows_its_student__note(stem, early, late):
    x = stem(torch.randn(6, 8))
    student, wanted = early(x), torch.randint(0, 4, (6,))
    target = late(x.relu()).softmax(-1)  # TRAIN022
    loss = F.kl_div(student.log_softmax(-1), target, reduction="batchmean")
    return loss + F.cross_entropy(student, wanted)


@losses(lambda: (nn.Linear(8, 4), nn.Linear(8, 1)))
def advantage_over_a_rollout(policy, critic):
    chances, values, state, moves = [], [], torch.randn(16, 8), torch.randn(4, 8)
    for _ in range(24):
        each = torch.distributions.Categorical(logits=policy(state))
        action = each.sample()
        chances.append(each.log_prob(action))
        values.append(critic(state).squeeze(-1))
        state = (state + moves[action]).clamp(-2, 2)
    values, returns = torch.stack(values), torch.randn(24, 16)
    advantage = returns - values  # TRAIN022
    loss = -(torch.stack(chances) * advantage).mean()
    return loss + 0.5 * (returns - values).pow(2).mean()


@losses(lambda: (nn.Linear(8, 8), nn.Linear(8, 4)))
def soft_labels_by_hand__note(stem, head):
    x = torch.randn(6, 8)
    target = torch.softmax(head(stem(x + 0.1 * torch.randn(6, 8))) / 0.5, -1)  # TRAIN022
    strong = head(stem(x + torch.randn(6, 8)))
    return -(target * F.log_softmax(strong, -1)).sum(-1).mean()


def returns_behind_the_loss_of_the_actor():
    torch.manual_seed(0)
    actor, critic = nn.Linear(8, 4), nn.Linear(8, 1)

    def step():
        states, rewards = torch.randn(7, 16, 8), torch.randn(6, 16)
        values, found = critic(states).squeeze(-1), []
        carried = values[-1]
        for reward, after in zip(rewards.flip(0), values[1:].flip(0), strict=True):
            carried = reward + 0.97 * (0.1 * after + 0.9 * carried)  # TRAIN022
            found.append(carried)
        error = torch.stack(found[::-1]) - values[:-1]
        chances = torch.distributions.Categorical(logits=actor(states[:-1]))
        (-chances.log_prob(chances.sample()) * error.detach()).mean().backward()
        error.square().mean().backward()

    return step
