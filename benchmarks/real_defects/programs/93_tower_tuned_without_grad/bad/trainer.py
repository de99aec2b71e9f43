"""Visual instruction tuning: vision tower, connector and a small language model."""
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VOCAB, WIDTH, VISION, PATCHES, PROMPT, ANSWER = 64, 64, 48, 9, 5, 6


@dataclass
class TrainingArguments:
    tune_vision_tower: bool = True
    tune_connector: bool = True
    tune_llm: bool = True
    learning_rate: float = 1e-3
    epochs: int = 3
    batch_size: int = 16


class Instructions(Dataset):
    """The colour of the picture, asked and answered in tokens; labels are -100 over the question."""

    def __init__(self, count=192):
        rng = torch.Generator().manual_seed(19)
        self.colours = torch.randint(0, 27, (count,), generator=rng)
        self.questions = torch.randint(30, VOCAB, (count, PROMPT), generator=rng)
        self.noise = 0.1 * torch.randn(count, 3, 24, 24, generator=rng)

    def __len__(self):
        return len(self.colours)

    def __getitem__(self, index):
        colour = int(self.colours[index])
        rgb = torch.tensor([colour // 9, colour // 3 % 3, colour % 3]).float() - 1
        answer = (colour + torch.arange(ANSWER)) % 30
        labels = torch.cat([torch.full((PROMPT,), -100), answer])
        return rgb[:, None, None] + self.noise[index], torch.cat([self.questions[index], answer]), labels


class VisionTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Conv2d(3, VISION, 8, stride=8)
        self.encoder = nn.TransformerEncoderLayer(VISION, 4, 96, dropout=0.0, batch_first=True)

    @torch.no_grad()
    def forward(self, images):
        hidden = self.embed(images).flatten(2).transpose(1, 2)
        return self.encoder(hidden)


class TinyLlava(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision_tower = VisionTower()
        self.connector = nn.Sequential(nn.Linear(VISION, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.llm = nn.GRU(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.lm_head = nn.Linear(WIDTH, VOCAB)

    def forward(self, images, ids, labels):
        features = self.connector(self.vision_tower(images))
        hidden, _ = self.llm(torch.cat([features, self.words(ids)], dim=1))
        logits = self.lm_head(hidden[:, PATCHES:-1])
        return F.cross_entropy(logits.transpose(1, 2), labels[:, 1:], ignore_index=-100)


def optimizer_of(model, args):
    model.vision_tower.requires_grad_(args.tune_vision_tower)
    model.connector.requires_grad_(args.tune_connector)
    for part in (model.words, model.llm, model.lm_head):
        part.requires_grad_(args.tune_llm)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(trained, lr=args.learning_rate)


def train(args):
    torch.manual_seed(0)
    model = TinyLlava()
    optimizer = optimizer_of(model, args)
    loader = DataLoader(Instructions(), batch_size=args.batch_size, shuffle=True)
    for epoch in range(args.epochs):
        for images, ids, labels in loader:
            loss = model(images, ids, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    train(TrainingArguments())
