import torch.nn as nn
import torch.nn.functional as F


class Embedder(nn.Module):
    def __init__(self, d_in, d_hidden, d_out):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_in, d_hidden),
            nn.BatchNorm1d(d_hidden),
            nn.PReLU(),
            nn.Dropout(0.15),
            nn.Linear(d_hidden, d_out, bias=False),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


def cosine_triplet(a, p, n, margin=0.3):
    return F.relu(margin - (a * p).sum(-1) + (a * n).sum(-1)).mean()
