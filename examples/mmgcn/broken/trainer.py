"""
MMGCN, as its owner wrote it: a recommender that passes messages between users and items once for each modality
(what an item looks like, sounds like, is called), and ranks what a user took above what it did not (BPR), in mixed precision.

It trains, and goes NaN on a bad day. Each fault is numbered where it stands; README.md says what each one does,
../repaired/trainer.py is the same training without them.

$ python trainer.py                          # trains for a while
$ audit run trainer:step --steps 50          # tells what is wrong
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, Dataset

# -----------------------------------------------------------------------------
# data
n_users, n_items, n_tastes = 256, 512, 8
n_interactions = 16384
modalities = {"image": 64, "sound": 32, "title": 48}    # and their numbers of features
# model
n_embd = 32
n_layers = 2
# training
batch_size = 256
learning_rate = 1e-3
grad_clip = 5.0
log_interval = 50
seed = 1337
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
dtype = torch.float16
# -----------------------------------------------------------------------------

torch.manual_seed(seed)
torch.set_num_threads(1)    # the tensors are small


class Interactions(Dataset):
    """Who took what, and something that was not taken."""

    def __init__(self):
        taste, kind = torch.randint(n_tastes, (n_users,)), torch.randint(n_tastes, (n_items,))
        users = torch.randint(n_users, (n_interactions,))
        items = torch.randint(n_items, (n_interactions, 64))
        fits = (kind[items] == taste[users].unsqueeze(1)).int()
        rows = torch.arange(n_interactions)
        self.triples = torch.stack([users, items[rows, fits.argmax(1)], items[rows, fits.argmin(1)]], dim=1)
        self.features = {
            name: torch.randn(n_tastes, size)[kind] + 0.5 * torch.randn(n_items, size) for name, size in modalities.items()
        }

    def __len__(self):
        return n_interactions

    def __getitem__(self, i):
        return self.triples[i]


dataset = Interactions()
loader = DataLoader(
    dataset, batch_size=batch_size, shuffle=True, drop_last=True, pin_memory=device.type == "cuda",
    generator=torch.Generator().manual_seed(seed)
)


def adjacency():
    """The graph of who took what, each row divided by its number of edges."""
    edges = torch.zeros(n_users, n_items)
    edges[dataset.triples[:, 0], dataset.triples[:, 1]] = 1.0
    whole = torch.zeros(n_users + n_items, n_users + n_items)
    whole[:n_users, n_users:], whole[n_users:, :n_users] = edges, edges.T
    return whole / whole.sum(dim=1, keepdim=True).clamp(min=1.0)


graph = adjacency().to(device)


class Modality(nn.Module):
    """Messages between users and items, seen through one kind of feature."""

    def __init__(self, features):
        super().__init__()
        self.register_buffer("features", features)
        self.project = nn.Linear(features.shape[1], n_embd)
        self.layers = nn.ModuleList(nn.Linear(n_embd, n_embd) for _ in range(n_layers))

    def forward(self, users):
        nodes = torch.cat([users, self.project(self.features)])
        for layer in self.layers:
            nodes = nodes + F.leaky_relu(layer(graph @ nodes))
        return nodes


class MMGCN(nn.Module):

    def __init__(self):
        super().__init__()
        self.modalities = nn.ModuleDict({name: Modality(x) for name, x in dataset.features.items()})
        # Fault 1: tensors, not parameters. The model does not list them: they are neither saved nor moved nor trained.
        self.users = torch.rand(n_users, n_embd, device=device, requires_grad=True)

    def forward(self):
        nodes = torch.stack([modality(self.users) for modality in self.modalities.values()]).mean(dim=0)
        return nodes[:n_users], nodes[n_users:]


model = MMGCN().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
# Fault 2: the owner's remedy for the NaN. 2000 is the default: it changes nothing.
scaler = torch.amp.GradScaler(device.type, growth_interval=2000)


def endless(loader):
    while True:
        yield from loader


batches = endless(loader)
update = 0
total_loss = torch.zeros((), device=device)


def step():
    """One update from one batch of triples."""
    global update
    triples = next(batches).to(device, non_blocking=True)
    optimizer.zero_grad()
    with torch.autocast(device.type, dtype=dtype):
        users, items = model()
        user, taken, left = users[triples[:, 0]], items[triples[:, 1]], items[triples[:, 2]]
        score = torch.bmm(user.unsqueeze(1), (taken - left).unsqueeze(2)).flatten()
        # Fault 3: in float16 the sigmoid rounds to 0 below -17, so does 1e-8, and the logarithm is minus infinity.
        loss = -torch.log(torch.sigmoid(score) + 1e-8).mean()
        # What was taken should score well by itself, too.
        alone = torch.bmm(user.unsqueeze(1), taken.unsqueeze(2)).flatten()
        loss = loss - 0.1 * F.logsigmoid(alone).mean()
    scaler.scale(loss).backward()
    # Fault 4: the gradients are still scaled by 65536, so the limit is really 0.00008.
    clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    update += 1
    total_loss.add_(loss.detach())
    if update % log_interval == 0:
        print(f"update {update}  loss {total_loss.item() / log_interval:.4f}")
        total_loss.zero_()


if __name__ == "__main__":
    for _ in range(1000):
        step()
