import torch
from torch import nn
from torch.nn import functional as F

PAD, END, LENGTHS = 9, 8, (12, 7, 9)


def _tuned(labels_of, pad=END, lengths=LENGTHS, end=END, cut=False):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))

    def step():
        tokens = torch.randint(0, END, (3, 12))
        for row, length in enumerate(lengths):
            tokens[row, length - 1 :] = pad
            tokens[row, length - 1] = end
        out = model(tokens[:, :-1]) if cut else model(tokens)[:, :-1]
        labels = labels_of(tokens)[:, 1:]
        F.cross_entropy(out.flatten(0, 1), labels.flatten()).backward()

    return step


def _behind(tokens):
    labels = tokens.clone()
    for row, length in enumerate(LENGTHS):
        labels[row, length:] = -100
    return labels


def ends_are_targets__no_note():
    return _tuned(_behind)


def another_token_pads__no_note():
    return _tuned(lambda tokens: tokens.masked_fill(tokens == PAD, -100), pad=PAD)


def texts_without_an_end__no_note():
    return _tuned(lambda tokens: tokens.masked_fill(tokens == PAD, -100), pad=PAD, end=3)


def answers_that_are_cut_before_their_end__no_note():
    def labels_of(tokens):
        labels = tokens.masked_fill(tokens == END, -100)
        for row, length in enumerate(LENGTHS):
            labels[row, length - 2] = -100
        return labels

    return _tuned(labels_of)


def ends_are_targets_of_all_tokens_but_the_last__no_note():
    return _tuned(_behind, cut=True)


def another_token_pads_all_tokens_but_the_last__no_note():
    return _tuned(lambda tokens: tokens.masked_fill(tokens == PAD, -100), pad=PAD, cut=True)


def tags_of_the_tokens_themselves__no_note():
    """A class for each token, none for what ends and pads."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 10))

    def step():
        tokens = torch.randint(0, END, (3, 12))
        for row, length in enumerate(LENGTHS):
            tokens[row, length - 1 :] = END
        F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten(), ignore_index=END).backward()

    return step


def one_token_more_behind_the_end_of_the_longest__no_note():
    return _tuned(
        lambda tokens: tokens.masked_fill(tokens == PAD, -100), pad=PAD, lengths=(11, 7, 9)
    )
