"""Small convolutional network on a handwritten-digit-sized data set."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
SIZE, BATCH, EPOCHS, CLASSES = 2048, 128, 4, 10


def digits():
    rng = np.random.default_rng(64)
    labels = rng.integers(0, CLASSES, SIZE)
    prototypes = rng.integers(0, 200, (CLASSES, 28, 28))
    images = prototypes[labels] + rng.integers(0, 56, (SIZE, 28, 28))
    return images.astype(np.uint8), labels


def epochs():
    images, labels = digits()
    images = torch.from_numpy(images).to(device).float().div_(255).unsqueeze(1)
    images = (images - 0.1307) / 0.3081
    labels = torch.from_numpy(labels).to(device)
    for _ in range(EPOCHS):
        order = torch.randperm(SIZE, device=device)
        yield ((images[rows], labels[rows]) for rows in order.split(BATCH))


def network():
    return nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Conv2d(8, 16, 5, 2), nn.ReLU(), nn.Flatten(),
                         nn.Linear(16 * 16, 64), nn.ReLU(), nn.Linear(64, CLASSES)).to(device)


def main():
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch, batches in enumerate(epochs()):
        total, number = torch.zeros((), device=device), 0
        for images, labels in batches:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
            number += 1
        print(f"epoch {epoch}: {total.item() / number:.4f} over {number} batches")


if __name__ == "__main__":
    main()
