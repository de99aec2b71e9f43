"""Neural bag of words for the polarity of reviews."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(12)
VOCAB, WIDTH, CLASSES, BATCH, LONGEST = 300, 50, 2, 32, 60
polarity = torch.randn(VOCAB)


class MeanPool(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, WIDTH, padding_idx=0)

    def forward(self, x, lengths):
        return self.embedding(x).mean(dim=1)


class NBowModel(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.pool = MeanPool()
        self.stacked = nn.Sequential(nn.Linear(WIDTH, hidden), nn.ReLU(), nn.Dropout(0.2))
        self.output = nn.Linear(hidden, CLASSES)

    def forward(self, inputs):
        pooled = self.pool(inputs["x"], inputs["lengths"])
        return F.log_softmax(self.output(self.stacked(pooled)), dim=-1)


class ReviewReader:
    """Batches are padded to the longest review in them."""

    def __init__(self, count=640):
        self.reviews = []
        for _ in range(count):
            words = torch.randint(1, VOCAB, (int(torch.randint(3, LONGEST, ())),))
            self.reviews.append((words, int(polarity[words].mean() > 0)))

    def batch(self):
        chosen = [self.reviews[int(i)] for i in torch.randint(0, len(self.reviews), (BATCH,))]
        lengths = torch.tensor([len(words) for words, _ in chosen])
        x = nn.utils.rnn.pad_sequence([words for words, _ in chosen], batch_first=True)
        return {"x": x, "lengths": lengths}, torch.tensor([label for _, label in chosen])


class ClassifyTrainer:
    def __init__(self, model):
        self.model, self.criterion = model, nn.NLLLoss()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def fit_batch(self, inputs, y):
        self.model.train()
        self.optimizer.zero_grad()
        loss = self.criterion(self.model(inputs), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


reader = ReviewReader()
trainer = ClassifyTrainer(NBowModel())


def step():
    trainer.fit_batch(*reader.batch())
