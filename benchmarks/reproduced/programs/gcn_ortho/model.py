import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def orthogonal(rows, cols, gain=1.0):
    flat = np.random.randn(max(rows, cols), min(rows, cols))
    q, r = np.linalg.qr(flat)
    q = q * np.sign(np.diag(r))
    q = q if rows >= cols else q.T
    return torch.tensor(gain * q[:rows, :cols], dtype=torch.float32)


class GraphConv(nn.Module):
    def __init__(self, nin, nout, gain=1.0):
        super().__init__()
        self.weight = nn.Parameter(orthogonal(nin, nout, gain))
        self.bias = nn.Parameter(torch.zeros(nout))

    def forward(self, x, adj):
        return adj @ (x @ self.weight) + self.bias


class GCN(nn.Module):
    def __init__(self, nfeat, nhid, nclass, depth=3, dropout=0.4):
        super().__init__()
        dims = [nfeat] + [nhid] * (depth - 1) + [nclass]
        self.convs = nn.ModuleList(
            GraphConv(a, b, gain=2 ** 0.5 if i < depth - 1 else 1.0)
            for i, (a, b) in enumerate(zip(dims, dims[1:])))
        self.norms = nn.ModuleList(nn.LayerNorm(nhid) for _ in range(depth - 1))
        self.dropout = dropout

    def forward(self, x, adj):
        for conv, norm in zip(self.convs, self.norms):
            h = F.relu(norm(conv(x, adj)))
            h = F.dropout(h, self.dropout, self.training)
            x = h + x if h.shape == x.shape else h
        return self.convs[-1](x, adj)
