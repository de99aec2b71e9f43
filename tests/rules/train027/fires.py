import torch
from torch import nn
from torch.nn import functional as F

END, LENGTHS = 8, (12, 7, 9)


def _texts():
    tokens = torch.randint(0, END, (3, 12))
    for row, length in enumerate(LENGTHS):
        tokens[row, length - 1 :] = END
    return tokens


def ignored_by_the_loss__note():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))

    def step():
        tokens = _texts()
        out = model(tokens)[:, :-1].transpose(1, 2)
        F.cross_entropy(out, tokens[:, 1:], ignore_index=END).backward()  # TRAIN027

    return step


def labels_filled_by_the_token__note():
    """The model is given all tokens but the last, which no target names."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))

    def step():
        tokens = _texts()
        labels = tokens.masked_fill(tokens == END, -100)  # TRAIN027
        out = model(tokens[:, :-1]).transpose(1, 2)
        F.cross_entropy(out, labels[:, 1:]).backward()

    return step


def ignored_by_a_loss_that_is_made_before__note():
    """The model is given all tokens but the last."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 9))
    criterion = nn.CrossEntropyLoss(ignore_index=END)  # TRAIN027

    def step():
        tokens = _texts()
        out = model(tokens[:, :-1])
        criterion(out.flatten(0, 1), tokens[:, 1:].flatten()).backward()

    return step
