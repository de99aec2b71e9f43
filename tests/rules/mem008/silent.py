import torch

MIB = 2**20


def the_longest_batch_comes_first__rehearsal():
    lengths = iter(range(100, 8, -1))

    def step():
        batch = torch.empty(next(lengths) * 8 * MIB, dtype=torch.uint8, device="cuda")
        del batch

    return step


def many_sizes_that_are_the_same_in_each_step__rehearsal():
    def step():
        for size in range(20, 60, 5):
            layer = torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
            del layer

    return step


def short_batches_of_every_length__rehearsal():
    lengths = iter(range(1, 100))

    def step():
        batch = torch.empty(next(lengths) * 64 * 1024, dtype=torch.uint8, device="cuda")
        del batch

    return step


def _trained_on(sizes):
    """A step whose batch has the next of these lengths."""
    model, lengths = torch.nn.Linear(64, 64, device="cuda"), iter(sizes)

    def step():
        batch = torch.ones(next(lengths), 64).to("cuda")
        model(batch).relu().square().mean().backward()

    return step


def _drawn(low, high):
    return torch.randint(low, high, (200,), generator=torch.Generator().manual_seed(0)).tolist()


def lengths_rounded_up_to_multiples__rehearsal():
    return _trained_on([1024 * -(-length // 1024) for length in _drawn(10, 7000)])


def lengths_that_hardly_differ__rehearsal():
    return _trained_on(_drawn(4000, 4300))


def two_lengths_in_turn__rehearsal():
    return _trained_on([2000, 5000] * 100)


def a_smaller_last_batch__rehearsal():
    return _trained_on([4000, 4000, 4000, 1500] * 50)


def a_warm_up_of_growing_lengths__rehearsal():
    return _trained_on([*range(500, 4000, 500), *[4000] * 100])


def the_longest_batch_first_of_a_small_program__rehearsal():
    return _trained_on(range(8000, 2000, -200))


def a_few_labels_that_vary__rehearsal():
    """The rest of the step has one size."""
    counts = iter(_drawn(1, 500))
    step = _trained_on([4000] * 200)

    def labelled():
        torch.ones(next(counts), 4).to("cuda").sum()
        step()

    return labelled


def a_bank_that_grows__rehearsal():
    """MEM003 says so."""
    model, bank = torch.nn.Linear(64, 512, device="cuda"), [torch.zeros(0, 512, device="cuda")]

    def step():
        made = model(torch.ones(512, 64, device="cuda"))
        made.square().mean().backward()
        bank[0] = torch.cat([bank[0], made.detach()])

    return step
