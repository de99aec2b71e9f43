"""Click-through-rate prediction (factorisation machine) on an in-memory table."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
ROWS, FIELDS, CARDINALITY, DENSE, BATCH = 16384, 10, 200, 6, 1024

table_rng = torch.Generator().manual_seed(51)
sparse = torch.randint(0, CARDINALITY, (ROWS, FIELDS), generator=table_rng)
dense = torch.randn(ROWS, DENSE, generator=table_rng)
clicks = ((sparse[:, 0] % 3 == 0) ^ (dense[:, 0] > 0)).float()


class Table(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, row):
        return sparse[row], dense[row], clicks[row]


loader = DataLoader(Table(), batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True,
                    pin_memory=device.type == "cuda")


def endless():
    while True:
        yield from loader


class DeepFM(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.register_buffer("offsets", torch.arange(FIELDS) * CARDINALITY)
        self.linear = nn.Embedding(FIELDS * CARDINALITY, 1)
        self.embed = nn.Embedding(FIELDS * CARDINALITY, width)
        nn.init.normal_(self.embed.weight, std=0.01)
        self.deep = nn.Sequential(nn.Linear(FIELDS * width + DENSE, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, sparse_ids, dense_values):
        ids = sparse_ids + self.offsets
        e = self.embed(ids)
        pairwise = 0.5 * (e.sum(dim=1).pow(2) - e.pow(2).sum(dim=1)).sum(dim=1)
        deep = self.deep(torch.cat([e.flatten(1), dense_values], dim=1)).squeeze(1)
        return self.linear(ids).sum(dim=(1, 2)) + pairwise + deep


stream = endless()
model = DeepFM().to(device)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)
count = 0


def step():
    global count
    ids, values, labels = (t.to(device, non_blocking=True) for t in next(stream))
    loss = F.binary_cross_entropy_with_logits(model(ids, values), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(count, loss.item())
