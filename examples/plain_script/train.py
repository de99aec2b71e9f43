"""
A training script as most are: arguments, a main(), epochs, gradient accumulation, an evaluation
every so often, some prints. It knows nothing of the auditor, which finds the steps by itself,
from the optimizer. Nothing is wrong with it, and an audit must say so.

$ python train.py --epochs 3
$ audit run train.py --steps 50 -- --epochs 3      # has nothing to say
"""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def make_dataset(n, seed):
    """Pictures of noise with one bright square in them; the class is the cell of a 3x3 grid that it lies in."""
    draw = torch.Generator().manual_seed(seed)
    images = 0.5 * torch.randn(n, 1, 24, 24, generator=draw)
    labels = torch.randint(9, (n,), generator=draw)
    corners = torch.randint(4, (n, 2), generator=draw)
    for image, label, (dy, dx) in zip(images, labels.tolist(), corners.tolist()):
        y, x = 8 * (label // 3) + dy, 8 * (label % 3) + dx
        image[:, y : y + 4, x : x + 4] += 1.0
    return TensorDataset(images, labels)


class Net(nn.Module):

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = nn.Linear(32 * 6 * 6, 64)
        self.fc2 = nn.Linear(64, 9)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)


@torch.no_grad()
def evaluate(model, loader, device):
    """Mean loss and accuracy; both are summed on the device and read once."""
    model.eval()
    loss_sum = torch.zeros((), device=device)
    correct = torch.zeros((), device=device)
    for images, labels in loader:
        images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
        logits = model(images)
        loss_sum += F.cross_entropy(logits, labels, reduction="sum")
        correct += (logits.argmax(dim=1) == labels).sum()
    model.train()
    n = len(loader.dataset)
    return loss_sum.item() / n, correct.item() / n


def train(args, model, optimizer, train_loader, test_loader, device):
    updates, start = 0, time.time()
    running_loss = torch.zeros((), device=device)
    model.train()
    for epoch in range(1, args.epochs + 1):
        for i, (images, labels) in enumerate(train_loader, 1):
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            loss = F.cross_entropy(model(images), labels) / args.accumulate
            loss.backward()
            running_loss += loss.detach()
            if i % args.accumulate:
                continue                # gradients of more micro-batches are to come

            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            optimizer.zero_grad()
            updates += 1

            if updates % args.log_interval == 0:
                print(f"epoch {epoch}  update {updates}  loss {running_loss.item() / args.log_interval:.4f}  "
                      f"{(time.time() - start) / updates * 1000:.1f} ms an update")
                running_loss.zero_()
            if updates % args.eval_interval == 0:
                test_loss, accuracy = evaluate(model, test_loader, device)
                print(f"epoch {epoch}  update {updates}  test loss {test_loss:.4f}  accuracy {accuracy:.1%}")


def main():
    parser = argparse.ArgumentParser(description="find the bright square")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=16, help="of one micro-batch")
    parser.add_argument("--accumulate", type=int, default=2, help="micro-batches for each update")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--log-interval", type=int, default=50, help="in updates")
    parser.add_argument("--eval-interval", type=int, default=100, help="in updates")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    pinned = device.type == "cuda"
    train_loader = DataLoader(make_dataset(4096, args.seed), batch_size=args.batch_size, shuffle=True,
                              drop_last=True, pin_memory=pinned)
    test_loader = DataLoader(make_dataset(512, args.seed + 1), batch_size=128, pin_memory=pinned)

    model = Net().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    train(args, model, optimizer, train_loader, test_loader, device)


if __name__ == "__main__":
    main()
