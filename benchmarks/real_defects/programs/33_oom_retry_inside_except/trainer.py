"""Variable-size batches: halves the batch when the device runs out of memory."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB, DIM, LENGTH = 256, 64, 32


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.rnn = nn.GRU(DIM, DIM, batch_first=True)
        self.out = nn.Linear(DIM, VOCAB)

    def forward(self, tokens):
        return self.out(self.rnn(self.embed(tokens))[0])


model = Model().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(33)
total = torch.zeros((), device=device)
count, retries = 0, 0


def accumulate(tokens, weight=1.0):
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    (loss * weight).backward()
    return loss.detach() * weight


def in_halves(tokens):
    global retries
    retries += 1
    optimizer.zero_grad()
    torch.cuda.empty_cache()
    loss = torch.zeros((), device=device)
    for part in tokens.chunk(2):
        loss += accumulate(part, weight=part.size(0) / tokens.size(0))
    return loss


def step():
    global count
    tokens = torch.randint(0, VOCAB, (12, LENGTH + 1), device=device, generator=rng)
    optimizer.zero_grad()
    try:
        loss = accumulate(tokens)
    except torch.cuda.OutOfMemoryError:
        loss = in_halves(tokens)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    total.add_(loss)
    count += 1
    if count % 50 == 0:
        print(f"{count}: loss {total.item() / 50:.3f}, retries {retries}")
        total.zero_()
