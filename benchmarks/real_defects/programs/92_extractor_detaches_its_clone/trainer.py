"""Contrastive captioning: an image encoder whose last tokens are taken by a hook, and a text decoder."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(18)
VOCAB, WIDTH, WORDS, PATCHES, BATCH = 50, 48, 10, 16, 16


class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.to_patches = nn.Conv2d(3, WIDTH, 8, stride=8)
        self.positions = nn.Parameter(0.02 * torch.randn(PATCHES, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 96, dropout=0.0, batch_first=True)
        self.transformer = nn.TransformerEncoder(layer, 2)

    def forward(self, images):
        tokens = self.to_patches(images).flatten(2).transpose(1, 2) + self.positions
        return self.transformer(tokens).mean(1)


class Extractor(nn.Module):
    """Gives a layer's output beside the network's own."""

    def __init__(self, vit, layer):
        super().__init__()
        self.vit, self.latents = vit, None
        getattr(vit, layer).register_forward_hook(self._hook)

    def _hook(self, _, inputs, output):
        self.latents = output.clone().detach()

    def forward(self, images):
        self.vit(images)
        latents, self.latents = self.latents, None
        return latents


class CoCa(nn.Module):
    def __init__(self, image_encoder):
        super().__init__()
        self.image_encoder = image_encoder
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.text_positions = nn.Parameter(0.02 * torch.randn(WORDS, WIDTH))
        layer = nn.TransformerDecoderLayer(WIDTH, 4, 96, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoder(layer, 2)
        self.to_image, self.to_text = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.to_logits = nn.Linear(WIDTH, VOCAB)
        self.temperature = nn.Parameter(torch.tensor(1.0))

    def forward(self, text, images):
        tokens = self.image_encoder(images)
        embedded = self.words(text[:, :-1]) + self.text_positions[: text.shape[1] - 1]
        causal = torch.ones(WORDS - 1, WORDS - 1, dtype=torch.bool).triu(1)
        logits = self.to_logits(self.decoder(embedded, tokens, tgt_mask=causal))
        caption = F.cross_entropy(logits.transpose(1, 2), text[:, 1:])
        image = F.normalize(self.to_image(tokens.mean(1)), dim=-1)
        words = F.normalize(self.to_text(embedded.mean(1)), dim=-1)
        similarity = self.temperature.exp() * words @ image.T
        targets = torch.arange(len(text))
        contrastive = (F.cross_entropy(similarity, targets) + F.cross_entropy(similarity.T, targets)) / 2
        return caption + contrastive


def pairs():
    """Pictures with one bright patch; the caption counts on from its place."""
    place = torch.randint(0, PATCHES, (BATCH,))
    images = 0.1 * torch.randn(BATCH, 3, 32, 32)
    for i, at in enumerate(place.tolist()):
        row, column = 8 * (at // 4), 8 * (at % 4)
        images[i, :, row : row + 8, column : column + 8] += 1
    return (place[:, None] + torch.arange(WORDS)) % VOCAB, images


coca = CoCa(Extractor(ViT(), "transformer"))
optimizer = torch.optim.AdamW(coca.parameters(), lr=1e-3)


def step():
    text, images = pairs()
    loss = coca(text, images)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
