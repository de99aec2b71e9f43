import gc

import torch
from torch import nn


def peak_reset_once_before_the_loop__cuda():
    model, x = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    return lambda: model(x).mean().backward()


def cache_emptied_every_fiftieth_step():
    model, count = nn.Linear(8, 1), [0]

    def step():
        model(torch.ones(4, 8)).mean().backward()
        count[0] += 1
        if count[0] % 50 == 0:
            torch.cuda.empty_cache()

    return step


def guarded_by_a_check_for_a_gpu():
    model = nn.Linear(8, 1)

    def step():
        model(torch.ones(4, 8)).mean().backward()
        if model.weight.is_cuda:
            torch.cuda.empty_cache()

    return step


def collected_now_and_then():
    model, count = nn.Linear(8, 1), [0]

    def step():
        model(torch.ones(4, 8)).mean().backward()
        count[0] += 1
        if count[0] % 20 == 0:
            gc.collect()

    return step


def a_cache_of_the_users_own():
    model = nn.Linear(8, 1)

    class Cache(dict):
        def empty_cache(self):
            self.clear()

    cache = Cache()

    def step():
        model(torch.ones(4, 8)).mean().backward()
        cache.empty_cache()

    return step
