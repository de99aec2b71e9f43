import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from tests.rules.programs import Tagger, Texts, optimized, trained_once

MEMORY_LIMIT = 160 << 20


def _pad(texts):
    return pad_sequence(texts, batch_first=True)


def _steps(dataset, model=None, collate=_pad, **options):
    model, optimizer = optimized((model or Tagger()).cuda(), lr=0.01)
    loader = DataLoader(dataset, collate_fn=collate, **{"batch_size": 4, **options})

    def forever():
        while True:
            yield from loader

    batches = forever()

    def step():
        trained_once(model, optimizer, next(batches).cuda())

    return step


def longest_texts_fit__rehearsal():
    return _steps(Texts([8 + number % 5 for number in range(396)] + [800] * 4))


def all_of_one_length__rehearsal():
    return _steps(Texts([40] * 200))


def longest_texts_are_cut__rehearsal():
    def cut(texts):
        return _pad([each[:64] for each in texts])

    return _steps(Texts([8] * 196 + [12000] * 4), collate=cut)


def a_sampler_that_leaves_long_ones_out__rehearsal():
    return _steps(Texts([8 + n % 3 for n in range(196)] + [12000] * 4), sampler=range(190))


class _Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        number = 0
        while True:
            number += 1
            yield torch.ones(8 + number % 5, dtype=torch.long)


def a_stream_that_cannot_be_read_ahead__rehearsal():
    return _steps(_Stream())


class _OutOfTurn(Texts):
    """Knows no sample but the next one."""

    def __init__(self, lengths):
        super().__init__(lengths)
        self.next = 0

    def __getitem__(self, number):
        if number < self.next:
            raise RuntimeError("out of turn")
        self.next = number + 1
        return super().__getitem__(number)


def a_dataset_that_cannot_be_asked_out_of_turn__rehearsal():
    return _steps(_OutOfTurn([8 + n % 5 for n in range(396)] + [12000] * 4))


def batches_made_by_hand__rehearsal():
    model, optimizer = optimized(Tagger().cuda(), lr=0.01)
    lengths = [8 + number % 5 for number in range(100)]

    def step():
        tokens = torch.ones(4, lengths[0], dtype=torch.long, device="cuda")
        lengths.append(lengths.pop(0))
        trained_once(model, optimizer, tokens)

    return step
