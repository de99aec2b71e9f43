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
        self.outputs = []

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
        self.outputs.append({"loss": loss.detach(), "logits": logits.detach(), "labels": labels})
        self.steps += 1
        if self.steps % STEPS_PER_EPOCH == 0:
            self.epoch_end()

    def epoch_end(self):
        logits = torch.cat([o["logits"] for o in self.outputs])
        labels = torch.cat([o["labels"] for o in self.outputs])
        accuracy = (logits.argmax(dim=1) == labels).float().mean().item()
        loss = torch.stack([o["loss"] for o in self.outputs]).mean().item()
        self.outputs.clear()
        print(f"epoch {self.steps // STEPS_PER_EPOCH}: loss {loss:.4f} accuracy {accuracy:.4f}")


module = Module()


def step():
    module.training_step()
