"""A graph network for energies of atomistic structures, one process of a distributed job."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

RANK, WORLD = 0, 2
ELEMENTS, WIDTH, CUTOFF = 4, 48, 1.6


class Structures(Dataset):
    def __init__(self, count):
        rng = torch.Generator().manual_seed(23)
        self.graphs = []
        for _ in range(count):
            atoms = int(torch.randint(5, 13, (), generator=rng))
            kinds = torch.randint(0, ELEMENTS, (atoms,), generator=rng)
            places = 1.5 * torch.randn(atoms, 3, generator=rng)
            distances = torch.cdist(places, places)
            source, target = torch.nonzero((distances < CUTOFF) & (distances > 0), as_tuple=True)
            energy = ((kinds[source] == kinds[target]).float() * distances[source, target]).sum() / atoms
            self.graphs.append((kinds, torch.stack([source, target]), distances[source, target], energy))

    def __len__(self):
        return len(self.graphs)

    def __getitem__(self, index):
        return self.graphs[index]


def collate(graphs):
    """One large graph of all graphs of the batch."""
    kinds, edges, lengths, energies, owner, offset = [], [], [], [], [], 0
    for number, (kind, edge, length, energy) in enumerate(graphs):
        kinds.append(kind)
        edges.append(edge + offset)
        lengths.append(length)
        energies.append(energy)
        owner.append(torch.full((len(kind),), number))
        offset += len(kind)
    return torch.cat(kinds), torch.cat(edges, 1), torch.cat(lengths), torch.cat(owner), torch.stack(energies)


class Convolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.message = nn.Sequential(nn.Linear(2 * WIDTH + 1, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.update = nn.Sequential(nn.Linear(2 * WIDTH, WIDTH), nn.SiLU())

    def forward(self, x, edges, lengths):
        source, target = edges
        messages = self.message(torch.cat([x[source], x[target], lengths[:, None]], dim=1))
        gathered = torch.zeros_like(x).index_add(0, target, messages)
        return x + self.update(torch.cat([x, gathered], dim=1))


class EnergyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(ELEMENTS, WIDTH)
        self.convolutions = nn.ModuleList(Convolution() for _ in range(3))
        self.readout = nn.Linear(WIDTH, 1)

    def forward(self, kinds, edges, lengths, owner, count):
        x = self.embedding(kinds)
        for convolution in self.convolutions:
            x = convolution(x, edges, lengths)
        sums = x.new_zeros(count, WIDTH).index_add(0, owner, x)
        return self.readout(sums / torch.bincount(owner, minlength=count)[:, None]).squeeze(-1)


def train_validate(model, loader, optimizer, epochs):
    for epoch in range(epochs):
        for kinds, edges, lengths, owner, energies in loader:
            loss = F.mse_loss(model(kinds, edges, lengths, owner, len(energies)), energies)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


def main():
    torch.manual_seed(0)
    dataset = Structures(96)
    sampler = DistributedSampler(dataset, num_replicas=WORLD, rank=RANK, shuffle=True)
    loader = DataLoader(dataset, batch_size=8, sampler=sampler, collate_fn=collate)
    model = EnergyModel()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train_validate(model, loader, optimizer, epochs=7)


if __name__ == "__main__":
    main()
