"""TRAIN004 must stay silent."""

import torch
from torch import nn
from torch.nn import functional as F

LENGTHS = (12, 3, 6, 2)
PAD = 8


def _batch():
    tokens = torch.randint(1, 8, (4, 12))
    for row, length in enumerate(LENGTHS):
        tokens[row, length:] = PAD
    return tokens


def _model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))


def padding_named_as_ignored():
    model = _model()

    def step():
        tokens = _batch()
        attention_mask = (tokens != PAD).long()
        F.cross_entropy(model(tokens).transpose(1, 2), tokens, ignore_index=PAD).backward()
        return attention_mask

    return step


def padding_set_to_minus_100():
    model = _model()

    def step():
        tokens = _batch()
        attention_mask = tokens != PAD
        labels = tokens.masked_fill(~attention_mask, -100)
        F.cross_entropy(model(tokens).transpose(1, 2), labels).backward()

    return step


def masked_afterwards():
    model = _model()

    def step():
        tokens = _batch()
        mask = (tokens != PAD).float()
        each = F.cross_entropy(model(tokens).transpose(1, 2), tokens, reduction="none")
        ((each * mask).sum() / mask.sum()).backward()

    return step


def picked_before():
    model = _model()

    def step():
        tokens = _batch()
        mask = tokens != PAD
        F.cross_entropy(model(tokens)[mask], tokens[mask]).backward()

    return step


def nothing_is_padded():
    model = _model()

    def step():
        tokens = torch.randint(1, 8, (4, 12))
        attention_mask = torch.ones_like(tokens)
        F.cross_entropy(model(tokens).transpose(1, 2), tokens).backward()
        return attention_mask

    return step


def a_causal_mask_of_the_same_size():
    model = _model()

    def step():
        tokens = torch.randint(1, 8, (12, 12))
        mask = torch.ones(12, 12).tril()
        F.cross_entropy(model(tokens).transpose(1, 2), tokens).backward()
        return mask

    return step


def the_mask_is_the_target():
    torch.manual_seed(0)
    model = nn.Linear(12, 24)

    def step():
        mask = torch.zeros(4, 12, dtype=torch.long)
        mask[:, 8:] = 1
        F.cross_entropy(model(torch.randn(4, 12)).view(4, 2, 12), mask).backward()

    return step


def masked_language_model():
    """The mask says which tokens are hidden, here and there."""
    model = _model()

    def step():
        tokens = torch.randint(1, 8, (4, 12))
        mask = torch.rand(4, 12) < 0.3
        hidden = tokens.masked_fill(mask, 0)
        F.cross_entropy(model(hidden).transpose(1, 2), tokens).backward()

    return step


def lengths_of_something_else():
    model = _model()

    def step():
        tokens, prompt_lengths = torch.randint(1, 8, (4, 12)), torch.tensor([2, 3, 4, 5])
        F.cross_entropy(model(tokens).transpose(1, 2), tokens).backward()
        return prompt_lengths

    return step
