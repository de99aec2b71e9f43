import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from tests.rules.train019.fires import _Tied, _trained


def tied_throughout():
    return _trained(_Tied())


def tied_in_a_copy():
    return _trained(copy.deepcopy(_Tied()).to(torch.float64).float())


def tied_again():
    model = _Tied()
    model.embed.weight = nn.Parameter(torch.randn(16, 8))
    model.head.weight = model.embed.weight
    return _trained(model)


def another_head():
    model = _Tied()
    model.head = nn.Linear(8, 16)
    return _trained(model)


def a_head_of_other_classes():
    model = _Tied()
    model.head.weight = nn.Parameter(torch.randn(20, 8))
    return _trained(model)


def untied_by_a_copy_on_purpose():
    model = _Tied()
    model.head.weight = nn.Parameter(model.embed.weight.detach().clone())
    return _trained(model)


def one_of_them_is_frozen():
    model = _Tied()
    model.embed.weight = nn.Parameter(torch.randn(16, 8), requires_grad=False)
    return _trained(model)


def layers_that_began_alike():
    embed, head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)
    head.load_state_dict(embed.state_dict())
    return _trained(nn.Sequential(embed, head))


def ones_of_two_norms():
    return _trained(nn.Sequential(nn.Embedding(16, 8), nn.LayerNorm(8), nn.LayerNorm(8), nn.Linear(8, 16)))


def lazy_layers():
    model = nn.Sequential(nn.Embedding(16, 8), nn.LazyLinear(8), nn.LazyLinear(16))
    model(torch.arange(16))
    return _trained(model)


def a_parametrization_takes_the_weight():
    return _trained(nn.Sequential(nn.Embedding(16, 8), parametrizations.weight_norm(nn.Linear(8, 16))))


def one_list_of_shared_parameters():
    shared = nn.Parameter(torch.randn(16, 8))
    lists = nn.ParameterList([shared]), nn.ParameterList([shared])
    optimizer, tokens = torch.optim.SGD([shared], lr=0.1), torch.arange(16)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(lists[0][0] @ lists[1][0].T, tokens).backward()
        optimizer.step()

    return step


def another_embedding_that_is_tied_again():
    model = _Tied()
    model.embed = nn.Embedding(16, 8)
    model.head.weight = model.embed.weight
    return _trained(model)


def another_embedding_with_a_copy_of_the_weight():
    model = _Tied()
    model.embed = nn.Embedding.from_pretrained(model.embed.weight.detach().clone(), freeze=False)
    return _trained(model)


def another_embedding_that_is_frozen():
    model = _Tied()
    model.embed = nn.Embedding.from_pretrained(torch.randn(16, 8))
    return _trained(model)


def another_embedding_of_what_was_never_tied():
    model = nn.Sequential(nn.Embedding(16, 8), nn.Linear(8, 16))
    model[0] = nn.Embedding(16, 8)
    return _trained(model)
