import math
import random

_coin = random.Random()


class ScheduledSampling:
    """Inverse-sigmoid decay of the teacher forcing rate (Bengio et al. 2015)."""

    def __init__(self, k=12.0, floor=0.1):
        self.k, self.floor = k, floor
        self.t = 0

    @property
    def rate(self):
        return max(self.floor, self.k / (self.k + math.exp(self.t / self.k)))

    def advance(self):
        self.t += 1

    def use_gold(self):
        return _coin.random() < self.rate
