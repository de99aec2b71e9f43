"""TRAIN004 must report exactly the marked lines."""

import torch
from torch import nn
from torch.nn import functional as F

LENGTHS = (12, 3, 6, 2)
PAD = 8


def _batch(first=1):
    tokens = torch.randint(first, 8, (4, 12))
    for row, length in enumerate(LENGTHS):
        tokens[row, length:] = PAD
    return tokens


def _model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))


def mask_in_the_batch():
    model = _model()

    def step():
        tokens = _batch()
        batch = {"input_ids": tokens, "attention_mask": (tokens != PAD).long()}
        out = model(batch["input_ids"])
        labels = batch["input_ids"][:, 1:]
        model.zero_grad()
        loss = F.cross_entropy(out[:, :-1].reshape(-1, 9), labels.reshape(-1))  # TRAIN004
        loss.backward()

    return step


def lengths_beside():
    model, criterion = _model(), nn.CrossEntropyLoss()

    def step():
        tokens, lengths = _batch(), torch.tensor(LENGTHS)
        model.zero_grad()
        criterion(model(tokens).transpose(1, 2), tokens).backward()  # TRAIN004
        return lengths

    return step


def log_probabilities():
    model = _model()

    def step():
        tokens = _batch()
        pad_mask = tokens == PAD
        logarithms = model(tokens).log_softmax(-1)
        model.zero_grad()
        F.nll_loss(logarithms.flatten(0, 1), tokens.flatten()).backward()  # TRAIN004
        return pad_mask

    return step


def _padded_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(9, 8, padding_idx=PAD), nn.Linear(8, 9))


def padding_index_of_the_embedding():
    model = _padded_model()

    def step():
        tokens = _batch()
        out = model(tokens[:, :-1])
        model.zero_grad()
        F.cross_entropy(out.flatten(0, 1), tokens[:, 1:].reshape(-1)).backward()  # TRAIN004

    return step


def _frames(lengths):
    frames = torch.randn(4, 12, 3)
    return frames * (torch.arange(12) < lengths[:, None]).unsqueeze(-1)


def _sequences():
    torch.manual_seed(0)
    return nn.Linear(2, 3)


def frames_of_a_regression():
    model = _sequences()

    def step():
        lengths = torch.tensor(LENGTHS)
        frames = _frames(lengths)
        F.l1_loss(model(torch.randn(4, 12, 2)), frames).backward()  # TRAIN004

    return step


def difference_of_frames_in_the_last_dimension():
    model = _sequences()

    def step():
        lengths = torch.tensor(LENGTHS)
        frames = _frames(lengths).transpose(1, 2)
        diff = model(torch.randn(4, 12, 2)).transpose(1, 2) - frames  # TRAIN004
        diff.square().mean().backward()

    return step


def two_differences_in_one_sum():
    """The first is right at the padding; the mean still needs both in the same form."""
    model = _sequences()

    def step():
        lengths = torch.tensor(LENGTHS)
        frames = _frames(lengths)
        fine = model(torch.randn(4, 12, 2))
        coarse = fine * (frames != 0)
        first = (coarse - frames) ** 2
        second = (fine - frames) ** 2  # TRAIN004
        (first + second).mean().backward()

    return step
