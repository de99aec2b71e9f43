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


def _padded_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(9, 8, padding_idx=PAD), nn.Linear(8, 9))


def padding_index_that_is_ignored_too():
    model = _padded_model()

    def step():
        tokens = _batch()
        out = model(tokens[:, :-1]).transpose(1, 2)
        F.cross_entropy(out, tokens[:, 1:], ignore_index=PAD).backward()

    return step


def padding_index_as_the_last_word():
    """It ends each sentence, and no padding is fed."""
    model = _padded_model()

    def step():
        tokens = torch.randint(1, 8, (4, 12))
        following = torch.cat([tokens[:, 1:], torch.full((4, 1), PAD)], 1)
        F.cross_entropy(model(tokens).transpose(1, 2), following).backward()

    return step


def padding_of_another_sequence():
    """A sentence is read; what is predicted of it is as long by chance."""
    model = _padded_model()

    def step():
        F.cross_entropy(model(_batch()).transpose(1, 2), torch.randint(0, 9, (4, 12))).backward()

    return step


def _frames(lengths):
    frames = torch.randn(4, 12, 3)
    return frames * (torch.arange(12) < lengths[:, None]).unsqueeze(-1)


def _sequences():
    torch.manual_seed(0)
    return nn.Linear(2, 3)


def frames_weighed_by_their_mask():
    model = _sequences()

    def step():
        lengths = torch.tensor(LENGTHS)
        mask = (torch.arange(12) < lengths[:, None]).unsqueeze(-1)
        diff = (model(torch.randn(4, 12, 2)) - _frames(lengths)) ** 2
        ((diff * mask).sum() / (3 * mask.sum())).backward()

    return step


def frames_picked_by_their_mask():
    model = _sequences()

    def step():
        lengths = torch.tensor(LENGTHS)
        mask = torch.arange(12) < lengths[:, None]
        diff = model(torch.randn(4, 12, 2)) - _frames(lengths)
        diff[mask].square().mean().backward()

    return step


def frames_set_to_the_padding():
    model = _sequences()

    def step():
        lengths = torch.tensor(LENGTHS)
        frames = _frames(lengths)
        F.mse_loss(model(torch.randn(4, 12, 2)) * (frames != 0), frames).backward()

    return step


def frames_that_go_on_behind_their_lengths():
    """The lengths are those of prompts."""
    model = _sequences()

    def step():
        prompt_lengths = torch.tensor(LENGTHS)
        F.mse_loss(model(torch.randn(4, 12, 2)), torch.randn(4, 12, 3)).backward()
        return prompt_lengths

    return step
