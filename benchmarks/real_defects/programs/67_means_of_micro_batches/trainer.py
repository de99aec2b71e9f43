"""Fine-tuning on completions of varying lengths, with gradient accumulation."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
VOCAB, WIDTH, LENGTH, ACCUMULATED = 60, 48, 32, 4


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.body = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        return self.head(self.body(self.tokens(ids))[0])


def default_loss(model, ids, lengths):
    logits = model(ids[:, :-1])
    mask = torch.arange(1, LENGTH + 1) < lengths[:, None]
    ce = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none") * mask
    ntoks = mask.sum()
    return ce.sum() / ntoks, ntoks


def completions():
    longest = int(torch.randint(4, LENGTH + 2, ()))
    lengths = torch.randint(2, longest + 1, (4,))
    ids = torch.cumsum(torch.randint(1, 3, (4, LENGTH + 1)), 1) % VOCAB
    return ids, lengths


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)


def step():
    window = [completions() for _ in range(ACCUMULATED)]
    for ids, lengths in window:
        loss, ntoks = default_loss(model, ids, lengths)
        loss.backward()
    for parameter in model.parameters():
        parameter.grad.div_(ACCUMULATED)
    optimizer.step()
    optimizer.zero_grad()
