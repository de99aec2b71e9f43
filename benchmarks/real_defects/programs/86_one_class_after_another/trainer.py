"""Classification of an image folder, with a trainer and loader parameters in the way of a library."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES, PER_CLASS, SIZE = 6, 40, 24


class ImageFolder(Dataset):
    """Samples are listed folder by folder, as a file system lists them."""

    def __init__(self, train):
        rng = torch.Generator().manual_seed(17)
        self.patterns = torch.randn(CLASSES, 3, SIZE, SIZE, generator=rng)
        self.train = train
        self.samples = []
        for target in range(CLASSES):
            for number in range(PER_CLASS if train else 8):
                self.samples.append((f"class_{target:02d}/{number:04d}.png", target))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        _, target = self.samples[index]
        image = self.patterns[target] + 1.5 * torch.randn(3, SIZE, SIZE)
        if self.train and torch.rand(()) < 0.5:
            image = image.flip(-1)
        return image, target


def get_data_loader(train, dataloader_params):
    return DataLoader(ImageFolder(train), **dataloader_params)


def resnet(width=16):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        nn.Conv2d(width, 2 * width, 3, 2, 1, bias=False), nn.BatchNorm2d(2 * width), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, CLASSES),
    )


class Trainer:
    def __init__(self, training_params):
        self.params = training_params

    def train(self, model, train_loader, valid_loader):
        optimizer = torch.optim.SGD(
            model.parameters(), lr=self.params["initial_lr"], momentum=0.9, weight_decay=1e-4, nesterov=True
        )
        for epoch in range(self.params["max_epochs"]):
            model.train()
            for images, targets in train_loader:
                loss = F.cross_entropy(model(images), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            print(f"epoch {epoch}: accuracy {self.validate(model, valid_loader):.3f}")

    @torch.no_grad()
    def validate(self, model, loader):
        model.eval()
        hits = sum((model(images).argmax(1) == targets).sum().item() for images, targets in loader)
        return hits / len(loader.dataset)


def main():
    torch.manual_seed(0)
    dataloader_params = {"batch_size": 16, "num_workers": 0}
    train_loader = get_data_loader(True, dataloader_params)
    valid_loader = get_data_loader(False, {"batch_size": 16})
    Trainer({"max_epochs": 4, "initial_lr": 0.01}).train(resnet(), train_loader, valid_loader)


if __name__ == "__main__":
    main()
