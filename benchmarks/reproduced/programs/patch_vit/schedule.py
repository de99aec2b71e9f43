import math
import time


class BudgetSchedule:
    """Linear warm-up, then cosine decay towards `floor`.

    Sized for the short jobs on the shared queue.
    """

    def __init__(self, optimizer, peak, total_steps, warmup=4, warmup_s=1.5, floor=0.05):
        self.optimizer = optimizer
        self.peak = peak
        self.total_steps = total_steps
        self.warmup = warmup
        self.warmup_s = warmup_s
        self.floor = floor
        self.n = 0
        self.started = time.monotonic()

    def _warm(self):
        return min(1.0, (time.monotonic() - self.started) / self.warmup_s)

    def _decay(self):
        x = min(1.0, self.n / self.total_steps)
        return self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * x))

    def step(self):
        self.n += 1
        lr = self.peak * self._warm() * self._decay()
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        return lr
