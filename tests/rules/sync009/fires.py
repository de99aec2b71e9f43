import torch
from torch import nn

from tests.rules.programs import behind_a_backward


def cleanup_in_a_helper__rehearsal():
    def free_memory():
        torch.cuda.empty_cache()  # SYNC009

    return behind_a_backward(lambda loss: free_memory(), "cuda")


def _before_the_forward(call):
    model, x = nn.Linear(64, 64, device="cuda"), torch.ones(8, 64, device="cuda")

    def step():
        call()
        model(x).mean().backward()

    return step


def peak_reset_every_step__cuda():
    def reset():
        torch.cuda.reset_peak_memory_stats()  # SYNC009

    return _before_the_forward(reset)


def cache_emptied_every_step__cuda():
    return behind_a_backward(lambda loss: torch.cuda.empty_cache(), "cuda")  # SYNC009
