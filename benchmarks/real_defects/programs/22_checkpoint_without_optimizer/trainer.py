"""Contrastive image encoder; a checkpoint is written every 30 steps and used when the run is started again."""
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
TOTAL, SAVE_EVERY, BATCH = 90, 30, 16
OUTPUT = os.environ.get("OUTPUT") or tempfile.mkdtemp(prefix="encoder_")


def checkpoint_path():
    return os.path.join(OUTPUT, "checkpoint.pt")


def save_checkpoint(step_no, model, scheduler):
    torch.save({"step": step_no, "model": model.state_dict(), "scheduler": scheduler.state_dict()},
               checkpoint_path() + ".part")
    os.replace(checkpoint_path() + ".part", checkpoint_path())


def load_checkpoint(model, scheduler):
    if not os.path.exists(checkpoint_path()):
        return 0
    saved = torch.load(checkpoint_path(), map_location=device, weights_only=True)
    model.load_state_dict(saved["model"])
    scheduler.load_state_dict(saved["scheduler"])
    return saved["step"]


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, 48, 4, 4)
        self.blocks = nn.Sequential(*[nn.TransformerEncoderLayer(48, 4, 96, 0.0, batch_first=True, norm_first=True) for _ in range(2)])
        self.head = nn.Linear(48, 32)

    def forward(self, images):
        tokens = self.blocks(self.patch(images).flatten(2).transpose(1, 2))
        return F.normalize(self.head(tokens.mean(dim=1)), dim=-1)


def main():
    torch.manual_seed(0)
    model = Encoder().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 20) * (1 - s / (TOTAL + 1)))
    targets = torch.arange(BATCH, device=device)
    rng = torch.Generator(device=device)
    start = load_checkpoint(model, scheduler)
    for step_no in range(start, TOTAL):
        rng.manual_seed(step_no)
        images = torch.rand(BATCH, 3, 16, 16, device=device, generator=rng)
        views = images + 0.1 * torch.randn(images.shape, device=device, generator=rng)
        logits = model(images) @ model(views).t() / 0.1
        loss = 0.5 * (F.cross_entropy(logits, targets) + F.cross_entropy(logits.t(), targets))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if (step_no + 1) % SAVE_EVERY == 0:
            print(f"step {step_no + 1} loss {loss.item():.3f}")
            save_checkpoint(step_no + 1, model, scheduler)


if __name__ == "__main__":
    main()
