"""Draft-model training on conversations of very different lengths."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB, DIM, BATCH, LONGEST, PAD = 300, 48, 4, 128, 0

lengths_rng = random.Random(38)
token_rng = torch.Generator().manual_seed(38)


class DraftModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM, padding_idx=PAD)
        self.position = nn.Embedding(LONGEST, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 4, 96, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, VOCAB)
        self.register_buffer("causal", torch.ones(LONGEST, LONGEST, dtype=torch.bool).triu(1))

    def forward(self, tokens):
        n = tokens.size(1)
        x = self.embed(tokens) + self.position.weight[:n]
        return self.head(self.layers(x, mask=self.causal[:n, :n], is_causal=True))


def collate(sequences):
    longest = max(len(s) for s in sequences)
    batch = torch.full((len(sequences), longest), PAD)
    for row, sequence in enumerate(sequences):
        batch[row, :len(sequence)] = sequence
    return batch.pin_memory() if device.type == "cuda" else batch


def conversations():
    sizes = [lengths_rng.randrange(8, LONGEST + 1) for _ in range(BATCH)]
    return collate([torch.randint(1, VOCAB, (n,), generator=token_rng) for n in sizes])


model = DraftModel().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
count = 0


def step():
    global count
    tokens = conversations().to(device, non_blocking=True)
    logits = model(tokens)[:, :-1]
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=PAD)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(count, loss.item())
