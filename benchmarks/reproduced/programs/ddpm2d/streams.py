"""Named random streams: each consumer has its own generator, so that adding
one more consumer does not shift the numbers of the others."""
import torch


class Streams:
    def __init__(self, seed):
        self.seed = int(seed)
        self._gens = {}

    def derive(self, name):
        return hash((self.seed, name)) & 0x7FFFFFFF

    def get(self, name):
        if name not in self._gens:
            self._gens[name] = torch.Generator().manual_seed(self.derive(name))
        return self._gens[name]

    def randn_like(self, name, x):
        return torch.randn(x.shape, generator=self.get(name), dtype=x.dtype)
