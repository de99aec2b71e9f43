import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset, random_split


def synth_table(n=1200, numeric=14, latent=4, seed=11):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, latent))
    mix = rng.normal(size=(latent, numeric))
    x = np.tanh(z @ mix) + 0.1 * rng.normal(size=(n, numeric))
    x[:, ::5] = np.exp(x[:, ::5])
    cat = (z[:, :2] @ rng.normal(size=(2, 6))).argmax(1)
    return x.astype(np.float32), cat.astype(np.int64)


class TableData:
    def __init__(self, batch_size=64, val_fraction=0.2):
        x, c = synth_table()
        self.batch_size = batch_size
        ds = TensorDataset(torch.from_numpy(x), torch.from_numpy(c))
        n_val = int(len(ds) * val_fraction)
        # own generator, so that the split is independent of what else is drawn
        split_rng = torch.Generator().manual_seed(torch.initial_seed())
        self.train, self.val = random_split(ds, [len(ds) - n_val, n_val], generator=split_rng)
        xt = ds.tensors[0][self.train.indices]
        self.mean, self.std = xt.mean(0), xt.std(0)

    def scale(self, x):
        return (x - self.mean) / self.std

    def train_loader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True, drop_last=True)

    def val_loader(self):
        return DataLoader(self.val, 256)
