import torch


def everything_reserved_is_needed_at_the_peak__cuda():
    kept = [torch.empty(56 * 2**20, dtype=torch.uint8, device="cuda") for _ in range(8)]

    def step():
        large = torch.empty(96 * 2**20, dtype=torch.uint8, device="cuda")
        del large
        kept.append(kept.pop(0))

    return step


def large_temporary_reused_every_step__cuda():
    def step():
        large = torch.empty(512 * 2**20, dtype=torch.uint8, device="cuda")
        del large

    return step
