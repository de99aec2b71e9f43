"""Retention times of peptides with an LSTM."""
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

ALPHABET = "-ACDEFGHIKLMNPQRSTVWY"
LONGEST, WIDTH = 20, 48


def make_peptides(count):
    """Sequences with a time in minutes, from the hydrophobicity of their residues."""
    rng = random.Random(31)
    weights = {residue: rng.uniform(-1, 2) for residue in ALPHABET[1:]}
    peptides = []
    for _ in range(count):
        sequence = "".join(rng.choice(ALPHABET[1:]) for _ in range(rng.randint(7, LONGEST)))
        time = 3 + sum(weights[residue] for residue in sequence) / 4 + rng.gauss(0, 0.2)
        peptides.append((sequence, max(time, 0.5)))
    return peptides


class PeptideDataset(Dataset):
    def __init__(self, peptides):
        self.peptides = peptides
        self.index = {residue: number for number, residue in enumerate(ALPHABET)}

    def __len__(self):
        return len(self.peptides)

    def __getitem__(self, item):
        sequence, time = self.peptides[item]
        encoded = [self.index[residue] for residue in sequence.ljust(LONGEST, "-")]
        return torch.tensor(encoded), len(sequence), torch.tensor(time, dtype=torch.float32)


class RetentionModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.residues = nn.Embedding(len(ALPHABET), WIDTH, padding_idx=0)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.dense = nn.Linear(2 * WIDTH, 32)
        self.output = nn.Linear(32, 1)

    def forward(self, sequences, lengths):
        embedded = self.residues(sequences)
        packed = nn.utils.rnn.pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        hidden = torch.relu(self.dense(torch.cat([last[0], last[1]], dim=1)))
        return torch.relu(self.output(hidden)).squeeze(-1)


def fit(model, loader, epochs):
    criterion = nn.L1Loss()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(epochs):
        total = 0.0
        for sequences, lengths, times in loader:
            predicted = model(sequences, lengths)
            loss = criterion(predicted, times)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(times)
        print(f"epoch {epoch}: {total / len(loader.dataset):.4f}")


def main():
    torch.manual_seed(7)
    loader = DataLoader(PeptideDataset(make_peptides(480)), batch_size=32, shuffle=True)
    fit(RetentionModel(), loader, epochs=3)


if __name__ == "__main__":
    main()
