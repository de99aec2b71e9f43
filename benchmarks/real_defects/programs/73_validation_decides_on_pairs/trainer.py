"""One-day-ahead forecasts of returns from windows of prices, with early stopping on the validation loss."""
import copy

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

SEQ_LEN, PRED_LEN, FEATURES = 30, 1, 4


def make_series(days=900):
    rng = torch.Generator().manual_seed(11)
    shocks = torch.randn(days, FEATURES, generator=rng)
    series = torch.zeros(days, FEATURES)
    for day in range(2, days):
        series[day] = 0.6 * series[day - 1] - 0.3 * series[day - 2] + shocks[day]
    return series


def windows(series):
    count = len(series) - SEQ_LEN - PRED_LEN + 1
    x = torch.stack([series[i : i + SEQ_LEN] for i in range(count)])
    y = torch.stack([series[i + SEQ_LEN : i + SEQ_LEN + PRED_LEN, 0] for i in range(count)])
    return x, y.squeeze(-1) if PRED_LEN == 1 else y


class GatedResidual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ELU(), nn.Linear(width, width))
        self.gate = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        return self.norm(x + self.inner(x) * torch.sigmoid(self.gate(x)))


class TinyTFT(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Linear(FEATURES, width)
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.residual = GatedResidual(width)
        self.head = nn.Linear(width, PRED_LEN)

    def forward(self, x):
        encoded, _ = self.encoder(self.embed(x))
        attended, _ = self.attention(encoded[:, -1:], encoded, encoded, need_weights=False)
        return self.head(self.residual(attended[:, 0]))


def train_epoch(model, loader, criterion, optimizer):
    model.train()
    for x, y in loader:
        pred = model(x)
        loss = criterion(pred, y.view_as(pred))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def validate(model, loader, criterion):
    model.eval()
    total = 0.0
    for x, y in loader:
        pred = model(x)
        total += criterion(pred, y).item() * len(x)
    return total / len(loader.dataset)


def main():
    torch.manual_seed(0)
    x, y = windows(make_series())
    split = int(0.8 * len(x))
    train_loader = DataLoader(TensorDataset(x[:split], y[:split]), batch_size=64, shuffle=True)
    val_loader = DataLoader(TensorDataset(x[split:], y[split:]), batch_size=64)
    model = TinyTFT()
    criterion = nn.MSELoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    best, best_state, waited = float("inf"), None, 0
    for epoch in range(8):
        train_epoch(model, train_loader, criterion, optimizer)
        val_loss = validate(model, val_loader, criterion)
        print(f"epoch {epoch}: val {val_loss:.4f}")
        if val_loss < best:
            best, best_state, waited = val_loss, copy.deepcopy(model.state_dict()), 0
        else:
            waited += 1
            if waited >= 4:
                break
    model.load_state_dict(best_state)


if __name__ == "__main__":
    main()
