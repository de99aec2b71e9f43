"""A trainer that takes the loss from the model, and divides it by the accumulation steps."""
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


    def loss(self, ids, labels, num_items_in_batch=None):
        logits = self(ids)[:, :-1].reshape(-1, VOCAB)
        reduction = "mean" if num_items_in_batch is None else "sum"
        loss = F.cross_entropy(logits, labels[:, 1:].reshape(-1), reduction=reduction)
        return loss if num_items_in_batch is None else loss / num_items_in_batch


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

    def batch(self):
        ids = torch.cumsum(torch.randint(1, 3, (4, LENGTH)), 1) % VOCAB
        labels = ids.clone()
        for row in labels:
            row[: int(torch.randint(1, LENGTH - 1, ()))] = -100
        return ids, labels

    def training_step(self):
        batches = [self.batch() for _ in range(ACCUMULATED)]
        for ids, labels in batches:
            loss = self.model.loss(ids, labels) / ACCUMULATED
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


trainer = Trainer(Model())


def step():
    trainer.training_step()
