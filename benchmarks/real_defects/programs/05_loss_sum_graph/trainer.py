"""Fine-tuning loop which reports the mean loss of an epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

STEPS_PER_EPOCH, BATCH, FEATURES, CLASSES = 200, 64, 128, 16


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))

    def forward(self, x):
        return x + self.inner(self.norm(x))


model = nn.Sequential(nn.Linear(FEATURES, 96), *[Residual(96) for _ in range(4)], nn.Linear(96, CLASSES)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.01)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS_PER_EPOCH)

pool_rng = torch.Generator().manual_seed(7)
pool_x = torch.randn(64 * BATCH, FEATURES, generator=pool_rng)
pool_y = torch.randint(0, CLASSES, (64 * BATCH,), generator=pool_rng)
if device.type == "cuda":
    pool_x, pool_y = pool_x.pin_memory(), pool_y.pin_memory()

loss_sum = torch.tensor(0.0, device=device)
done = 0


def fetch(index):
    low = (index % 64) * BATCH
    x = pool_x[low:low + BATCH].to(device, non_blocking=True)
    y = pool_y[low:low + BATCH].to(device, non_blocking=True)
    return x, y


def step():
    global loss_sum, done
    x, y = fetch(done)
    outputs = model(x)
    loss = F.cross_entropy(outputs, y, label_smoothing=0.05)
    loss_sum += loss
    loss.backward()
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()
    done += 1
    if done % STEPS_PER_EPOCH == 0:
        print(f"epoch {done // STEPS_PER_EPOCH}: mean loss {loss_sum.item() / STEPS_PER_EPOCH:.4f}")
        loss_sum = torch.tensor(0.0, device=device)
