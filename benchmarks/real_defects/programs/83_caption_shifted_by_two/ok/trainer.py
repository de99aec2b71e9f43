"""Captions for small pictures: image patches are the prefix of a causal decoder."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)
VOCAB, WIDTH, PATCHES, WORDS, BATCH = 60, 64, 9, 14, 16
chain = torch.randn(VOCAB, VOCAB).mul(2.5).softmax(-1)


def causal_lm_loss(logits, labels, vocab_size, ignore_index=-100, shift_labels=None):
    """The loss of next-token prediction; labels are shifted here unless they come shifted."""
    logits = logits.float()
    if shift_labels is None:
        labels = F.pad(labels, (0, 1), value=ignore_index)
        shift_labels = labels[..., 1:].contiguous()
    logits = logits.view(-1, vocab_size)
    return F.cross_entropy(logits, shift_labels.view(-1), ignore_index=ignore_index)


class VisionProjection(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 8, stride=8)

    def forward(self, pixels):
        return self.patches(pixels).flatten(2).transpose(1, 2)


class Captioner(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = VisionProjection()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(PATCHES + WORDS, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerEncoder(layer, 2)
        self.output = nn.Linear(WIDTH, VOCAB)
        self.loss_function = causal_lm_loss

    def attention_mask(self, length):
        mask = torch.ones(length, length).tril().bool()
        mask[:PATCHES, :PATCHES] = True
        return ~mask

    def forward(self, pixels, input_ids, labels=None):
        hidden = torch.cat([self.vision(pixels), self.words(input_ids)], dim=1) + self.positions
        logits = self.output(self.decoder(hidden, mask=self.attention_mask(hidden.shape[1])))
        loss = None
        if labels is not None:
            logits = logits[:, PATCHES:-1].contiguous()
            shifted = labels[:, 1:].contiguous()
            loss = self.loss_function(logits.flatten(0, 1), labels, VOCAB, shift_labels=shifted.flatten())
        return loss, logits


def captioned_images():
    first = torch.randint(0, VOCAB, (BATCH,))
    pixels = 0.1 * torch.randn(BATCH, 3, 24, 24) + (first / VOCAB)[:, None, None, None]
    words = [first]
    for _ in range(WORDS - 1):
        words.append(torch.multinomial(chain[words[-1]], 1).squeeze(1))
    return pixels, torch.stack(words, dim=1)


model = Captioner()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def step():
    pixels, input_ids = captioned_images()
    loss, _ = model(pixels, input_ids, labels=input_ids)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
