"""MEM009 has no line of its own: each of these must give one finding."""

import torch

MIB = 2**20


def small_blocks_kept_in_large_segments__rehearsal():
    kept = []

    def step():
        large = torch.empty(96 * MIB, dtype=torch.uint8, device="cuda")
        del large
        kept.append(torch.empty(56 * MIB, dtype=torch.uint8, device="cuda"))
        del kept[:-8]

    return step
