import numpy as np
import torch


def stochastic_block_graph(n, k, feat, p_in=0.12, p_out=0.015, seed=0):
    """Planted partition graph with noisy bag-of-words features."""
    np.random.seed(seed)
    torch.manual_seed(seed)
    y = np.random.randint(0, k, size=n)
    same = y[:, None] == y[None, :]
    a = np.random.rand(n, n) < np.where(same, p_in, p_out)
    a = np.triu(a, 1)
    a = (a | a.T).astype(np.float32)
    centres = np.random.randn(k, feat)
    x = centres[y] * 0.4 + np.random.randn(n, feat)
    idx = np.random.permutation(n)
    masks = {}
    for name, lo, hi in (("train", 0, 0.5), ("val", 0.5, 0.7), ("test", 0.7, 1.0)):
        masks[name] = torch.from_numpy(idx[int(lo * n):int(hi * n)])
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(a), torch.from_numpy(y), masks


def normalise(a):
    a = a + torch.eye(a.size(0))
    d = a.sum(1).rsqrt()
    return d[:, None] * a * d[None, :]
