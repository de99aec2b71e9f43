import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import ecg
from sampling import EpisodeSampler

torch.set_num_threads(1)

conf = {
    "seed": 5,
    "records": 600,
    "shots": 4,
    "queries": 6,
    "episodes": 30,
    "width": 16,
    "lr": 2e-3,
}


def seed_all(s):
    random.seed(s)
    np.random.seed(s)
    torch.manual_seed(s)
    torch.use_deterministic_algorithms(True)


class Conv1dNet(nn.Module):
    def __init__(self, w, out=32):
        super().__init__()
        layers, c = [], 1
        for i, k in enumerate((7, 5, 5, 3)):
            o = w * (1 + i // 2)
            layers += [nn.Conv1d(c, o, k, padding=k // 2, bias=False), nn.BatchNorm1d(o), nn.ReLU(), nn.MaxPool1d(2)]
            c = o
        self.features = nn.Sequential(*layers)
        self.drop = nn.Dropout(0.1)
        self.embed = nn.Linear(2 * c, out)

    def forward(self, x):
        h = self.features(x)
        h = torch.cat([h.mean(-1), h.amax(-1)], 1)
        return self.embed(self.drop(h))


class ProtoTrainer:
    def __init__(self, conf):
        self.x, names = ecg.load(conf["records"], conf["seed"])
        self.x = torch.from_numpy(self.x)
        self.net = Conv1dNet(conf["width"])
        self.log_scale = nn.Parameter(torch.zeros(()))
        self.sampler = EpisodeSampler(names, conf["shots"], conf["queries"], conf["episodes"], seed=conf["seed"])
        self.opt = torch.optim.Adam([
            {"params": self.net.parameters()},
            {"params": [self.log_scale], "lr": conf["lr"] * 5},
        ], lr=conf["lr"])

    def episode(self, sup, qry):
        k, s = sup.shape
        q = qry.shape[1]
        z = self.net(self.x[np.concatenate([sup.ravel(), qry.ravel()])])
        proto = z[:k * s].view(k, s, -1).mean(1)
        dist = torch.cdist(z[k * s:], proto, compute_mode="donot_use_mm_for_euclid_dist").pow(2)
        logits = -dist * self.log_scale.exp() / proto.size(1)
        y = torch.arange(k).repeat_interleave(q)
        return F.cross_entropy(logits, y), (logits.argmax(1) == y).view(k, q).float().mean(1)

    def fit(self):
        self.net.train()
        table = {r: [] for r in ecg.RHYTHMS}
        for i, (sup, qry, tags) in enumerate(self.sampler):
            loss, acc = self.episode(sup, qry)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            for r, a in zip(tags, acc.tolist()):
                table[r].append(a)
            print(f"episode {i + 1:3d}/{len(self.sampler)} loss {loss.item():.7f} acc {acc.mean():.3f}")
        for r in ecg.RHYTHMS:
            print(f"  {r:8s} {np.mean(table[r][-10:]):.3f}")


def main():
    seed_all(conf["seed"])
    ProtoTrainer(conf).fit()


if __name__ == "__main__":
    main()
