import torch
from torch import nn
from torch.nn import functional as F


class _Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(16, 8), nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def _trained(model):
    optimizer, tokens = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.arange(16)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(tokens), tokens.roll(1)).backward()
        optimizer.step()

    return step


def by_a_checkpoint_that_is_assigned():
    model = _Tied()
    state = {name: torch.randn(16, 8) for name in ("embed.weight", "head.weight")}
    model.load_state_dict(state, assign=True)  # TRAIN019
    return _trained(model)


def by_equal_weights_of_a_checkpoint_that_are_assigned():
    model, weight = _Tied(), torch.randn(16, 8)
    state = {name: weight.clone() for name in ("embed.weight", "head.weight")}
    model.load_state_dict(state, assign=True)  # TRAIN019
    return _trained(model)


def by_another_embedding():
    model = _Tied()
    model.embed = nn.Embedding.from_pretrained(torch.randn(16, 8), freeze=False)  # TRAIN019
    return _trained(model)
