import numpy as np
import torch


def synth_gallery(n_ids, per_id, dim, noise, seed):
    """`per_id` noisy views of `n_ids` prototypes; returns features and identities."""
    rng = np.random.default_rng(seed)
    proto = rng.normal(size=(n_ids, dim))
    camera = rng.normal(size=(3, dim)) * 0.7
    feats, ids = [], []
    for k in range(n_ids):
        for v in range(per_id):
            feats.append(proto[k] + camera[v % 3] + noise * rng.normal(size=dim))
            ids.append(k)
    return torch.tensor(np.array(feats), dtype=torch.float32), np.array(ids)
