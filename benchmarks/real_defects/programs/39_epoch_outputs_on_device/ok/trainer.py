"""Classifier with an epoch-level accuracy."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CLASSES, BATCH, STEPS_PER_EPOCH = 500, 64, 5000


class LongTail(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        self.head = nn.Linear(128, CLASSES)

    def forward(self, x):
        return self.head(self.body(x))


class Module:
    def __init__(self):
        self.model = LongTail().to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.rng = torch.Generator(device=device).manual_seed(39)
        self.centres = torch.randn(CLASSES, 64, device=device, generator=self.rng)
        self.steps = 0
        self.correct = torch.zeros((), device=device)
        self.loss_sum = torch.zeros((), device=device)

    def batch(self):
        labels = torch.randint(0, CLASSES, (BATCH,), device=device, generator=self.rng)
        noise = torch.randn(BATCH, 64, device=device, generator=self.rng)
        return self.centres[labels] + noise, labels

    def training_step(self):
        x, labels = self.batch()
        logits = self.model(x)
        loss = F.cross_entropy(logits, labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.correct += (logits.detach().argmax(dim=1) == labels).sum()
        self.loss_sum += loss.detach()
        self.steps += 1
        if self.steps % STEPS_PER_EPOCH == 0:
            self.epoch_end()

    def epoch_end(self):
        accuracy = self.correct.item() / (STEPS_PER_EPOCH * BATCH)
        loss = self.loss_sum.item() / STEPS_PER_EPOCH
        self.correct.zero_()
        self.loss_sum.zero_()
        print(f"epoch {self.steps // STEPS_PER_EPOCH}: loss {loss:.4f} accuracy {accuracy:.4f}")


module = Module()


def step():
    module.training_step()
