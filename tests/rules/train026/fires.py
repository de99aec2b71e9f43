import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import losses


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


def _picking():
    return nn.Linear(5, 8), nn.Linear(3, 8), nn.Linear(8, 1)


@losses(_picking)
def a_goal_that_is_added_to_each_candidate(candidate, goal, score):
    kept = torch.rand(4, 6) < 0.8
    x = candidate(torch.randn(4, 6, 5)).relu() + goal(torch.randn(4, 3))[:, None]  # TRAIN026
    logits = score(x)[..., 0].masked_fill(~kept, -1e9)
    return F.cross_entropy(logits / 0.5, torch.randint(0, 6, (4,)))


@losses(lambda: (nn.Linear(5, 8), nn.Linear(3, 8), nn.Linear(16, 1)))
def a_context_beside_each_step_of_a_pooling(steps, context, score):
    x = steps(torch.randn(4, 6, 5)).tanh()
    beside = context(torch.randn(4, 3)).tanh()[:, None].expand(-1, 6, -1)
    both = torch.cat([x, beside], -1)  # TRAIN026
    weights = score(both).softmax(1)
    return (weights * x).sum(1).square().mean()


@losses(lambda: nn.Linear(8, 1, bias=False))
def features_of_the_person_in_a_linear_choice(score):
    person = torch.randn(4, 1, 3)
    x = torch.cat([torch.randn(4, 6, 5), person.expand(4, 6, 3)], dim=2)  # TRAIN026
    return F.cross_entropy(score(x).squeeze(-1), torch.randint(0, 6, (4,)))
