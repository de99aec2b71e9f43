import torch

MIB = 2**20


def lengths_in_turn_with_ever_longer_ones_between__rehearsal():
    lengths = iter([60, 20, 64, 30, 70, 25, 77, 30, 85, 20, 93, 22, 102, 30, 111, 40, 120, 20, 130, 40] * 3)

    def step():
        weights = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        batch = torch.empty(next(lengths) * 4 * MIB, dtype=torch.uint8, device="cuda")  # MEM008
        del batch, weights

    return step


def padded_to_its_longest__rehearsal():
    model = torch.nn.Linear(64, 64, device="cuda")
    lengths = torch.randint(20, 400, (200, 4), generator=torch.Generator().manual_seed(0)).tolist()
    samples = [[torch.ones(length, 64) for length in each] for each in lengths]

    samples = iter(samples)

    def step():
        batch = torch.nn.utils.rnn.pad_sequence(next(samples), batch_first=True)
        batch = batch.to("cuda")  # MEM008
        model(batch).relu().square().mean().backward()

    return step


def resized_at_random__rehearsal():
    model = torch.nn.Conv2d(3, 8, 3, device="cuda")
    sides = iter(torch.randint(4, 12, (200,), generator=torch.Generator().manual_seed(0)).tolist())

    def step():
        images = torch.ones(2, 3, 96, 96, device="cuda")
        side = 16 * next(sides)
        images = torch.nn.functional.interpolate(images, (side, side))  # MEM008
        model(images).relu().square().mean().backward()

    return step


def rows_kept_by_a_mask__rehearsal():
    model = torch.nn.Linear(64, 64, device="cuda")
    shares = iter(torch.rand(200, generator=torch.Generator().manual_seed(0)).tolist())

    def step():
        points = torch.rand(8192, 64, device="cuda")
        kept = points[points[:, 0] > next(shares)]  # MEM008
        model(kept).relu().square().mean().backward()

    return step
