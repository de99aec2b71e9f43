import argparse
import glob
import os
import random
import shutil
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from text import Vocab, corpus, splits, word_counts

torch.set_num_threads(1)


class StepTimer:
    def __init__(self):
        self.hist = []

    def __enter__(self):
        self.t = time.perf_counter()

    def __exit__(self, *exc):
        self.hist.append(time.perf_counter() - self.t)

    def eta(self, left):
        return left * sum(self.hist[-5:]) / len(self.hist[-5:])


class MaskedLM(nn.Module):
    def __init__(self, vocab, d=48, heads=4, depth=2, maxlen=10):
        super().__init__()
        self.emb, self.pos = nn.Embedding(vocab, d, padding_idx=0), nn.Embedding(maxlen, d)
        enc = nn.TransformerEncoderLayer(d, heads, 2 * d, 0.1, "gelu", batch_first=True)
        self.enc = nn.TransformerEncoder(enc, depth, enable_nested_tensor=False)
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, ids):
        h = self.enc(self.emb(ids) + self.pos.weight[: ids.size(1)])
        return h @ self.emb.weight.t() + self.bias


def mask_tokens(ids, vocab, p):
    allowed = torch.tensor([[int(t) in vocab.maskable for t in row] for row in ids])
    pick = (torch.rand(ids.shape) < p) & allowed
    pick[:, 2] = True
    inp = torch.where(pick, torch.full_like(ids, 1), ids)
    return inp, torch.where(pick, ids, torch.full_like(ids, -100))


def shards(train_ids, sents, vocab, folder, per=100):
    order = sorted(train_ids)
    for k in range(0, len(order), per):
        arr = np.array([vocab.encode(sents[i]) for i in order[k:k + per]])
        np.save(os.path.join(folder, f"shard{k // per:03d}.npy"), arr)
    files = sorted(glob.glob(os.path.join(folder, "*.npy")))
    return torch.from_numpy(np.concatenate([np.load(f) for f in files]))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--seed", type=int, default=42)
    ap.add_argument("--steps", type=int, default=30)
    ap.add_argument("--batch", type=int, default=32)
    args = ap.parse_args()
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)

    sents = corpus(800, random.Random(args.seed))
    vocab = Vocab(sents)
    train_ids, val_ids = splits(len(sents), 0.1, args.seed)
    tmp = tempfile.mkdtemp()
    try:
        data = shards(train_ids, sents, vocab, tmp)
    finally:
        shutil.rmtree(tmp)
    counts = word_counts(sents)
    top = sorted(counts, key=lambda w: (-counts[w], w))[:5]
    print(f"pid {os.getpid()} vocab {len(vocab)} train {len(data)} val {len(val_ids)} top {top}")

    model = MaskedLM(len(vocab))
    with torch.no_grad():
        for w, c in counts.items():
            model.bias[vocab.stoi[w]] = float(np.log(c))
    groups = {}
    for n, p in model.named_parameters():
        groups.setdefault(p.ndim > 1, []).append(p)
    opt = torch.optim.AdamW([{"params": groups[True], "weight_decay": 0.01},
                             {"params": groups[False], "weight_decay": 0.0}], lr=1e-3)
    shown = random.Random()
    timer = StepTimer()
    for step in range(args.steps):
        with timer:
            ids = data[torch.randperm(len(data))[:args.batch]]
            inp, lab = mask_tokens(ids, vocab, 0.15)
            logits = model(inp)
            loss = F.cross_entropy(logits.reshape(-1, len(vocab)), lab.reshape(-1), ignore_index=-100)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(f"step {step:2d} loss {loss.item():.7f} eta {timer.eta(args.steps - step - 1):.2f}s")
        if step % 10 == 9:
            r = shown.randrange(args.batch)
            guess = logits[r, 2].argmax().item()
            print("    e.g.", vocab.itos[ids[r, 2]], "->", vocab.itos[guess])


if __name__ == "__main__":
    main()
