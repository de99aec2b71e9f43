"""Extractive question answering; a batch is scattered over replicas as DataParallel does it."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

VOCAB, WIDTH, LENGTH, REPLICAS = 200, 48, 40, 4


def make_examples(count):
    """The answer is the stretch between the two marker tokens."""
    rng = torch.Generator().manual_seed(6)
    ids = torch.randint(2, VOCAB, (count, LENGTH), generator=rng)
    start = torch.randint(1, LENGTH - 8, (count,), generator=rng)
    end = start + torch.randint(1, 6, (count,), generator=rng)
    rows = torch.arange(count)
    ids[rows, start - 1], ids[rows, end + 1] = 0, 1
    return TensorDataset(ids, start, end)


class QuestionAnswering(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 96, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.outputs = nn.Linear(WIDTH, 2)

    def forward(self, ids, start=None, end=None):
        hidden = self.encoder(self.words(ids) + self.positions)
        start_logits, end_logits = self.outputs(hidden).unbind(-1)
        if start is None:
            return start_logits, end_logits
        return (F.cross_entropy(start_logits, start) + F.cross_entropy(end_logits, end)) / 2


def parallel_forward(model, batch):
    """One loss for each replica; chunks are cut as DataParallel's scatter cuts them."""
    shares = list(zip(*(tensor.chunk(REPLICAS) for tensor in batch)))
    losses = [model(*share) for share in shares]
    return torch.stack(losses)


def train(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        model.train()
        for batch in loader:
            loss = parallel_forward(model, batch)
            loss = loss.mean()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}: {loss.item():.4f}")


def main():
    torch.manual_seed(0)
    loader = DataLoader(make_examples(130), batch_size=13, shuffle=True)
    model = QuestionAnswering()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train(model, loader, optimizer, epochs=4)


if __name__ == "__main__":
    main()
