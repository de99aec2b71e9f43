import torch
from torch import nn


def cleanup_in_a_helper__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def free_memory():
        torch.cuda.empty_cache()  # SYNC009

    def step():
        model(torch.ones(4, 8, device="cuda")).mean().backward()
        free_memory()

    return step


def peak_reset_every_step__cuda():
    model, x = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda")

    def step():
        torch.cuda.reset_peak_memory_stats()  # SYNC009
        model(x).mean().backward()

    return step


def cache_emptied_every_step__cuda():
    model, x = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda")

    def step():
        model(x).mean().backward()
        torch.cuda.empty_cache()  # SYNC009

    return step


def peak_reset_by_its_old_name__rehearsal():
    model, x = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda")

    def step():
        torch.cuda.reset_max_memory_allocated()  # SYNC009
        model(x).mean().backward()

    return step


def peak_reset_through_the_module_of_memory__rehearsal():
    model, x = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda")

    def step():
        torch.cuda.memory.reset_peak_memory_stats()  # SYNC009
        model(x).mean().backward()

    return step
