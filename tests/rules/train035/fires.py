import random

import torch
from torch.nn import functional as F

from tests.rules.programs import Decoder


def _chats(rows=8):
    made = random.Random(0)
    sizes = [made.randint(2, 9) for _ in range(rows)]
    return [
        ([made.randint(2, 18) for _ in range(size)], [made.randint(2, 18) for _ in range(3)])
        for size in sizes
    ]


def _marked(sizes=(8, 6, 5, 7), mark=18):
    """Prompts that are longer than their padding, and end in the same token."""
    made = random.Random(0)
    return [
        ([*(made.randint(2, 17) for _ in range(size - 1)), mark], [2 + size % 7, 3, 4])
        for size in sizes
    ]


def _padded(chats, left=True):
    width = max(len(prompt) + len(answer) for prompt, answer in chats)
    tokens = torch.zeros(len(chats), width, dtype=torch.long)
    for row, (prompt, answer) in enumerate(chats):
        whole = torch.tensor(prompt + answer)
        begins = width - len(whole) if left else 0
        tokens[row, begins : begins + len(whole)] = whole
    return tokens


def _trained(model, tokens, labels):
    def step():
        logits = model(tokens)[:, :-1]
        F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten()).backward()

    return step


def prompts_longer_than_their_padding():
    chats = _marked()
    tokens = _padded(chats)
    labels = tokens.masked_fill(tokens == 0, -100)
    for row, (prompt, _) in enumerate(chats):
        labels[row, : len(prompt)] = -100  # TRAIN035
    return _trained(Decoder(), tokens, labels)
