"""Natural language inference on sentence pairs with a small BERT."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

PAD, CLS, SEP, VOCAB, WIDTH, LONGEST = 0, 1, 2, 120, 64, 48


def make_pairs(count, seed):
    """entailment: a part of the premise; contradiction: it with a negation; neutral: other words."""
    rng, pairs = random.Random(seed), []
    for _ in range(count):
        premise = [rng.randrange(10, VOCAB) for _ in range(rng.randint(4, 28))]
        label = rng.randrange(3)
        hypothesis = rng.sample(premise, k=min(len(premise), rng.randint(3, 8)))
        if label == 1:
            hypothesis.insert(0, 5)
        elif label == 2:
            hypothesis = [rng.randrange(10, VOCAB) for _ in hypothesis]
        pairs.append((premise, hypothesis, label))
    return pairs


def build_batch(pairs):
    sequences, segments, labels = [], [], []
    for premise, hypothesis, label in pairs:
        sequences.append([CLS, *premise, SEP, *hypothesis, SEP])
        segments.append([0] * (len(premise) + 2) + [1] * (len(hypothesis) + 1))
        labels.append(label)
    longest = max(len(ids) for ids in sequences)
    padded, types, masks = [], [], []
    for ids, kinds in zip(sequences, segments):
        padded.append(ids + [PAD] * (longest - len(ids)))
        types.append(kinds + [0] * (longest - len(ids)))
        masks.append([1] * longest)
    return torch.tensor(padded), torch.tensor(types), torch.tensor(masks), torch.tensor(labels)


class SmallBert(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.positions = nn.Embedding(LONGEST, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.1, batch_first=True, activation="gelu")
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.classifier = nn.Linear(WIDTH, 3)

    def forward(self, ids, token_type_ids, attention_mask):
        hidden = self.words(ids) + self.types(token_type_ids)
        hidden = hidden + self.positions(torch.arange(ids.shape[1]))
        hidden = self.encoder(hidden, src_key_padding_mask=attention_mask == 0)
        return self.classifier(hidden[:, 0])


def train(model, pairs, optimizer, batch_size=16):
    model.train()
    random.shuffle(pairs)
    for start in range(0, len(pairs), batch_size):
        ids, types, masks, labels = build_batch(pairs[start : start + batch_size])
        loss = F.cross_entropy(model(ids, types, masks), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return loss.item()


def main():
    random.seed(0)
    torch.manual_seed(0)
    pairs = make_pairs(192, seed=1)
    model = SmallBert()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for epoch in range(3):
        print(f"epoch {epoch}: {train(model, pairs, optimizer):.4f}")


if __name__ == "__main__":
    main()
