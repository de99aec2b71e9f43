"""Sequence classification with gradient accumulation."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

ACCUMULATE, BATCH, LENGTH, VOCAB = 2, 8, 24, 300


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, 48)
        self.positions = nn.Parameter(torch.zeros(LENGTH, 48))
        layer = nn.TransformerEncoderLayer(48, 4, 96, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(48, 2)

    def forward(self, ids):
        return self.out(self.encoder(self.tokens(ids) + self.positions).mean(dim=1))


class Trainer:
    def __init__(self):
        self.model = Classifier().to(device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-4)
        self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.1, 1.0, total_iters=20)
        self.rng = torch.Generator(device=device).manual_seed(11)
        self.running = torch.zeros((), device=device)
        self.global_step = 0

    def next_inputs(self):
        ids = torch.randint(0, VOCAB, (BATCH, LENGTH), device=device, generator=self.rng)
        labels = (ids.float().mean(dim=1) > VOCAB / 2).long()
        return ids, labels

    def training_step(self):
        ids, labels = self.next_inputs()
        loss = F.cross_entropy(self.model(ids), labels)
        del ids, labels
        (loss / ACCUMULATE).backward()
        return loss.detach()

    def optimizer_step(self):
        for _ in range(ACCUMULATE):
            self.running += self.training_step()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.scheduler.step()
        self.optimizer.zero_grad()
        self.global_step += 1
        if self.global_step % 20 == 0:
            print(self.global_step, (self.running / (20 * ACCUMULATE)).item())
            self.running.zero_()


trainer = Trainer()


def step():
    trainer.optimizer_step()
