import torch


def small_blocks_kept_in_large_segments__cuda():
    kept = []

    def step():
        large = torch.empty(96 * 2**20, dtype=torch.uint8, device="cuda")
        del large
        kept.append(torch.empty(56 * 2**20, dtype=torch.uint8, device="cuda"))  # MEM005
        del kept[:-8]

    return step
