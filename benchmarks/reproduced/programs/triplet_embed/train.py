"""Re-identification embeddings with a triplet loss."""
import random

import numpy as np
import torch

from reid import Embedder, TripletMiner, cosine_triplet, synth_gallery

CFG = {
    "seed": 99,
    "data": {"n_ids": 40, "per_id": 9, "dim": 32, "noise": 0.6},
    "model": {"d_hidden": 64, "d_out": 16},
    "train": {"triplets": 96, "steps": 32, "lr": 0.01, "margin": 0.3},
}


def setup(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)


@torch.no_grad()
def rank1(model, x, ids):
    model.eval()
    z = model(x)
    sim = z @ z.T
    sim.fill_diagonal_(-2)
    best = sim.argmax(1).numpy()
    model.train()
    return float((ids[best] == ids).mean())


def train(cfg):
    x, ids = synth_gallery(**cfg["data"], seed=cfg["seed"])
    model = Embedder(x.shape[1], **cfg["model"])
    miner = TripletMiner(ids)
    t = cfg["train"]
    opt = torch.optim.RMSprop(model.parameters(), lr=t["lr"])
    ema = None
    for step in range(1, t["steps"] + 1):
        ia, ip, ineg = miner.draw(t["triplets"])
        z = model(torch.cat([x[ia], x[ip], x[ineg]]))
        loss = cosine_triplet(*z.chunk(3), margin=t["margin"])
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema = loss.item() if ema is None else 0.9 * ema + 0.1 * loss.item()
        if step % 8 == 0 or step == 1:
            print(f"step {step:3d}: loss={loss.item():.8f} ema={ema:.6f} rank1={rank1(model, x, ids):.3f}")
    return model


if __name__ == "__main__":
    setup(CFG["seed"])
    train(CFG)
