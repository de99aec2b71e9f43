"""Route support tickets to a queue: EmbeddingBag + one hidden layer."""
import os
import random

import numpy as np
import torch
import torch.nn as nn

from text import Vocab

QUEUES = {
    "billing": "invoice charge refund card payment receipt tax total discount plan",
    "network": "router wifi latency packet vpn signal dns timeout cable port",
    "account": "password login email reset username locked profile verify token session",
    "shipping": "parcel courier delivery address tracking warehouse damaged late box label",
}
FILLER = "please hello the my is not a can you help again since today yesterday with still and why it's".split()

HP = dict(seed=13, n_docs=640, dim=24, hidden=32, batch=40, epochs=2, lr=1e-2)


def set_global_seed(seed):
    os.environ["PYTHONHASHSEED"] = str(seed)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def write_tickets(n):
    names = list(QUEUES)
    docs, labels = [], []
    for _ in range(n):
        y = random.randrange(len(names))
        topic = random.choices(QUEUES[names[y]].split(), k=random.randint(2, 4))
        stray = random.choices(QUEUES[random.choice(names)].split(), k=1)
        words = topic + stray + random.choices(FILLER, k=random.randint(4, 9))
        random.shuffle(words)
        docs.append(" ".join(words))
        labels.append(y)
    return docs, labels


class Router(nn.Module):
    def __init__(self, n_words, dim, hidden, n_out):
        super().__init__()
        self.bag = nn.EmbeddingBag(n_words, dim, mode="mean", padding_idx=0)
        self.out = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Dropout(0.1), nn.Linear(hidden, n_out))

    def forward(self, flat, offsets):
        return self.out(self.bag(flat, offsets))


def collate(encoded, labels, idx):
    flat, offsets = [], []
    for i in idx:
        offsets.append(len(flat))
        flat.extend(encoded[i])
    return torch.tensor(flat), torch.tensor(offsets), torch.tensor([labels[i] for i in idx])


def run(hp):
    set_global_seed(hp["seed"])
    docs, labels = write_tickets(hp["n_docs"])
    cut = int(0.9 * len(docs))
    vocab = Vocab.from_docs(docs[:cut])
    encoded = [vocab.encode(d) for d in docs]
    print(f"{len(docs)} tickets, vocabulary of {len(vocab)}")

    model = Router(len(vocab), hp["dim"], hp["hidden"], len(QUEUES))
    opt = torch.optim.Adam(model.parameters(), lr=hp["lr"])
    ce = nn.CrossEntropyLoss()
    train_ids, test_ids = list(range(cut)), list(range(cut, len(docs)))
    for epoch in range(hp["epochs"]):
        random.shuffle(train_ids)
        for lo in range(0, cut, hp["batch"]):
            flat, off, y = collate(encoded, labels, train_ids[lo:lo + hp["batch"]])
            loss = ce(model(flat, off), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if lo % (4 * hp["batch"]) == 0:
                print(f"  epoch {epoch} doc {lo:4d} loss {loss.item():.8f}")
    model.eval()
    with torch.no_grad():
        flat, off, y = collate(encoded, labels, test_ids)
        acc = (model(flat, off).argmax(1) == y).float().mean().item()
    print(f"test accuracy {acc:.4f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(HP)
