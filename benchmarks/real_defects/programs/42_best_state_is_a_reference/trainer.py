"""Imputation of time series with early stopping on a validation loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPOCHS, STEPS, BATCH, LENGTH, FEATURES = 12, 8, 16, 24, 5


class Imputer(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(2 * FEATURES, 32, batch_first=True, bidirectional=True)
        self.out = nn.Linear(64, FEATURES)

    def forward(self, x, mask):
        return self.out(self.rnn(torch.cat([x * mask, mask], dim=-1))[0])


def series(n, rng):
    t = torch.linspace(0, 6.28, LENGTH, device=device)[None, :, None]
    phase = torch.rand(n, 1, FEATURES, device=device, generator=rng) * 6.28
    return torch.sin(t + phase)


def masked_mae(model, x, rng):
    mask = (torch.rand(x.shape, device=device, generator=rng) > 0.3).float()
    hidden = 1 - mask
    return (F.l1_loss(model(x, mask), x, reduction="none") * hidden).sum() / hidden.sum().clamp(min=1)


@torch.no_grad()
def validate(model, data):
    model.eval()
    value = masked_mae(model, data, torch.Generator(device=device).manual_seed(1))
    model.train()
    return value.item()


def main():
    torch.manual_seed(0)
    rng = torch.Generator(device=device).manual_seed(42)
    model = Imputer().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-2)
    training = series(BATCH, rng)
    training = training + 0.8 * torch.randn(training.shape, device=device, generator=rng)
    validation = series(64, rng)
    best_loss, best_state, patience = float("inf"), None, 12
    for epoch in range(EPOCHS):
        for _ in range(STEPS):
            loss = masked_mae(model, training, rng)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        current = validate(model, validation)
        print(f"epoch {epoch}: validation MAE {current:.4f}")
        if current < best_loss:
            best_loss, patience = current, 12
            best_state = model.state_dict()
        else:
            patience -= 1
            if patience == 0:
                break
    model.load_state_dict(best_state)
    print(f"best {best_loss:.4f}, restored model {validate(model, validation):.4f}")


if __name__ == "__main__":
    main()
