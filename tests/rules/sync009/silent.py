import gc
import itertools

import torch
from torch import nn

from tests.rules.programs import behind_a_backward


def peak_reset_once_before_the_loop__cuda():
    model, x = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    return lambda: model(x).mean().backward()


def cache_emptied_every_fiftieth_step():
    done = itertools.count(1)
    return behind_a_backward(lambda loss: next(done) % 50 or torch.cuda.empty_cache())


def guarded_by_a_check_for_a_gpu():
    return behind_a_backward(lambda loss: torch.cuda.empty_cache() if loss.is_cuda else None)


def collected_now_and_then():
    done = itertools.count(1)
    return behind_a_backward(lambda loss: next(done) % 20 or gc.collect())


def a_cache_of_the_users_own():
    class Cache(dict):
        def empty_cache(self):
            self.clear()

    cache = Cache()
    return behind_a_backward(lambda loss: cache.empty_cache())
