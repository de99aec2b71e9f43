"""Surrogate model for a simulation; saves a checkpoint after each epoch and can resume."""
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPOCHS, STEPS, BATCH = 4, 16, 8
FOLDER = os.environ.get("RUN_DIR") or tempfile.mkdtemp(prefix="surrogate_")
CHECKPOINT = os.path.join(FOLDER, "recent.pt")


class Trainer:
    def __init__(self):
        self.model = nn.Sequential(nn.Conv2d(2, 24, 5, padding=2, padding_mode="circular"), nn.GELU(),
                                   nn.Conv2d(24, 24, 5, padding=2, padding_mode="circular"), nn.GELU(),
                                   nn.Conv2d(24, 2, 1)).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-3)
        warmup = torch.optim.lr_scheduler.LinearLR(self.optimizer, 0.01, 1.0, total_iters=STEPS)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=(EPOCHS - 1) * STEPS)
        self.scheduler = torch.optim.lr_scheduler.SequentialLR(self.optimizer, [warmup, cosine], [STEPS])
        self.rng = torch.Generator(device=device)
        self.epoch = 0

    def save_model(self):
        state = {
            "epoch": self.epoch,
            "model_state_dict": self.model.state_dict(),
            "optimizer_state_dict": self.optimizer.state_dict(),
        }
        torch.save(state, CHECKPOINT + ".tmp")
        os.replace(CHECKPOINT + ".tmp", CHECKPOINT)

    def load_checkpoint(self):
        state = torch.load(CHECKPOINT, map_location=device, weights_only=True)
        self.epoch = state["epoch"]
        self.model.load_state_dict(state["model_state_dict"])
        self.optimizer.load_state_dict(state["optimizer_state_dict"])

    def train_one_epoch(self):
        self.rng.manual_seed(100 + self.epoch)  # the data order depends on the epoch only
        total = torch.zeros((), device=device)
        for _ in range(STEPS):
            field = torch.randn(BATCH, 2, 24, 24, device=device, generator=self.rng)
            field = F.avg_pool2d(F.pad(field, (1, 1, 1, 1), mode="circular"), 3, 1)
            loss = F.mse_loss(self.model(field), field.roll(1, dims=-1))
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()
            total += loss.detach()
        self.epoch += 1
        print(f"epoch {self.epoch} loss {total.item() / STEPS:.4f} lr {self.scheduler.get_last_lr()[0]:.2e}")


def main():
    torch.manual_seed(0)
    trainer = Trainer()
    if os.path.exists(CHECKPOINT):
        trainer.load_checkpoint()
    while trainer.epoch < EPOCHS:
        trainer.train_one_epoch()
        trainer.save_model()


if __name__ == "__main__":
    main()
