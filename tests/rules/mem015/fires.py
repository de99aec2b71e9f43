import torch

MIB = 2**20
MEMORY_LIMIT = 512 * MIB


def holes_too_small_for_the_request__rehearsal():
    blocks = [torch.empty(40 * MIB, dtype=torch.uint8, device="cuda") for _ in range(10)]
    del blocks[::2]

    def step():
        pieces = [torch.empty(30 * MIB, dtype=torch.uint8, device="cuda") for _ in range(6)]
        torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")  # MEM015
        del pieces

    return step
