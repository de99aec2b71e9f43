import torch
from torch import nn
from torch.nn import functional as F


def condition_in_front_of_an_instance_norm():
    layer, norm, head = nn.Conv1d(2, 6, 3), nn.InstanceNorm1d(6, affine=True), nn.Linear(6, 1)
    condition = nn.Linear(4, 6)

    def step():
        shift = condition(torch.randn(3, 4)).unsqueeze(-1)
        out = norm(shift + layer(torch.randn(3, 2, 9)))  # TRAIN026
        head(out.relu().mean(-1)).square().mean().backward()

    return step


def _attending(weigh):
    torch.manual_seed(0)
    scores, bias = nn.Linear(8, 8), nn.Linear(1, 2)

    def step():
        x, age = torch.randn(4, 5, 8), torch.rand(4, 5, 1)
        heads = scores(x).view(4, 5, 2, 4).transpose(1, 2)
        weights = weigh(heads @ heads.transpose(2, 3) * 0.5, bias(age).transpose(1, 2))
        (weights @ heads).square().mean().backward()

    return step


def biases_of_queries():
    def weigh(products, bias):
        future = torch.ones(5, 5).triu(1).bool()
        products = products + bias[..., None]  # TRAIN026
        return products.masked_fill(future, float("-inf")).softmax(dim=-1)

    return _attending(weigh)


def _choosing(loss_of):
    torch.manual_seed(0)
    items, user = nn.Linear(5, 1), nn.Linear(3, 1)

    def step():
        scores, beside = items(torch.randn(4, 6, 5)).squeeze(-1), user(torch.randn(4, 3))
        loss_of(scores, beside, torch.randint(0, 6, (4,))).backward()

    return step


def scores_of_users_in_a_choice():
    def loss_of(scores, beside, choice):
        scores = scores + beside + torch.linspace(0, 1, 6)  # TRAIN026
        return F.cross_entropy(scores.masked_fill(torch.arange(6) == 7, -1e9), choice)

    return _choosing(loss_of)
