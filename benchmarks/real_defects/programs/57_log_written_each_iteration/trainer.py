"""Pre-training loop with a JSON-lines log."""
import json
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB, DIM, BATCH, LENGTH, LOG_INTERVAL, WARMUP = 256, 64, 4, 24, 50, 30


class Writer:
    def __init__(self):
        self.file = open(os.path.join(tempfile.mkdtemp(prefix="log_"), "scalars.jsonl"), "w")

    def add_scalars(self, iteration, **values):
        self.file.write(json.dumps({"iteration": iteration, **values}) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.position = nn.Parameter(torch.zeros(LENGTH, DIM))
        layer = nn.TransformerEncoderLayer(DIM, 4, 2 * DIM, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, VOCAB)
        self.register_buffer("causal", torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1))

    def forward(self, ids):
        return self.head(self.layers(self.embed(ids) + self.position, mask=self.causal, is_causal=True))


model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / WARMUP))
writer = Writer()
rng = torch.Generator(device=device).manual_seed(57)
loss_sum = torch.zeros((), device=device)
iteration = 0


def step():
    global iteration
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH + 1), device=device, generator=rng)
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    loss_sum.add_(loss.detach())
    iteration += 1
    writer.add_scalars(iteration, learning_rate=scheduler.get_last_lr()[0])
    if iteration % LOG_INTERVAL == 0:
        writer.add_scalars(iteration, loss=loss_sum.item() / LOG_INTERVAL)
        loss_sum.zero_()
