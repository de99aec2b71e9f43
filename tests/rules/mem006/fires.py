import torch

MIB = 2**20


def one_large_temporary__rehearsal():
    weights = torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")

    def step():
        scores = torch.empty(900 * MIB, dtype=torch.uint8, device="cuda")  # MEM006
        weights.add_(1)
        del scores
        small = torch.empty(MIB, dtype=torch.uint8, device="cuda")
        del small

    return step


def many_blocks_of_one_line__rehearsal():
    def step():
        kept = [torch.empty(64 * MIB, dtype=torch.uint8, device="cuda") for _ in range(9)]  # MEM006
        one = torch.empty(128 * MIB, dtype=torch.uint8, device="cuda")
        del kept, one

    return step
