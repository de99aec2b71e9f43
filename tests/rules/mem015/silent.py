import torch

MIB = 2**20
MEMORY_LIMIT = 512 * MIB


def almost_full__rehearsal():
    kept = [torch.empty(100 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]

    def step():
        kept[0].add_(1)

    return step


def an_error_that_the_program_gets_over__rehearsal():
    def step():
        try:
            torch.empty(600 * MIB, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")

    return step


def cache_given_back_to_make_room__rehearsal():
    def step():
        for size in (100, 130, 170, 220, 290):
            large = torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
            del large

    return step


def on_the_host():
    def step():
        large = torch.empty(600 * MIB, dtype=torch.uint8)
        del large

    return step
