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
