"""Pretraining on documents that a best-fit packer puts into rows."""
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


def documents():
    while True:
        yield torch.cumsum(torch.randint(1, 3, (int(torch.randint(4, 18, ())),)), 0) % VOCAB


class Packer:
    def __init__(self, rows, buffer_size):
        self.source, self.rows, self.buffer_size = documents(), rows, buffer_size
        self.buffer = []

    def collate(self):
        """Rows of LENGTH + 1 tokens, and labels of -100 where nothing was left to put."""
        ids = torch.zeros(self.rows, LENGTH + 1, dtype=torch.long)
        labels = torch.full_like(ids, -100)
        self.buffer += [next(self.source) for _ in range(self.rows)]
        for row in range(self.rows):
            start = 0
            while True:
                room = LENGTH + 1 - start
                fitting = [each for each in self.buffer if len(each) <= room]
                if not fitting:
                    break
                best = max(fitting, key=len)
                self.buffer = [each for each in self.buffer if each is not best]
                ids[row, start : start + len(best)] = labels[row, start : start + len(best)] = best
                start += len(best)
        return ids, labels


packer = Packer(rows=8, buffer_size=64)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)


def step():
    ids, labels = packer.collate()
    logits = model(ids[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
