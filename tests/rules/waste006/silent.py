import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler, TensorDataset

from tests.rules.programs import on_texts

TEXTS = [torch.arange(1, 11 + number * 5 % 7) for number in range(64)]


def _to(width, rows):
    return torch.stack([F.pad(row, (0, width - len(row))) for row in rows])


def as_wide_as_the_longest__no_note():
    def collate(rows):
        return pad_sequence(rows, batch_first=True)

    return on_texts(DataLoader(TEXTS, 8, collate_fn=collate))


def a_little_wider__no_note():
    def collate(rows):
        return _to(18, rows)

    return on_texts(DataLoader(TEXTS, 8, collate_fn=collate))


def rows_that_are_full__no_note():
    texts = [torch.randint(1, 90, (32,)) for _ in range(64)]
    return on_texts(DataLoader(texts, 8))


def long_beside_short_is_a_note():
    texts = [torch.arange(1, 81 if number % 8 == 5 else 9) for number in range(64)]

    def collate(rows):
        return pad_sequence(rows, batch_first=True)

    return on_texts(DataLoader(texts, 8, collate_fn=collate))


def padding_that_occurs_in_the_text__no_note():
    """Zeros are pixels."""
    rows = [_to(64, [row])[0] for row in TEXTS]
    for row in rows:
        row[1] = 0
    return on_texts(DataLoader(rows, 8))


def targets_of_a_picture__no_note():
    """Few numbers beside what is computed."""
    data = [(_to(64, [row])[0], torch.randn(3, 16, 16)) for row in TEXTS]
    return on_texts(DataLoader(data, 8), lambda batch: batch[0])


def texts_that_are_only_evaluated__no_note():
    data = [_to(64, [row])[0] for row in TEXTS]
    training = on_texts(DataLoader([torch.randint(1, 90, (32,)) for _ in range(64)], 8))
    loader = DataLoader(data, 8)

    def step():
        training()
        with torch.no_grad():
            for tokens in loader:
                tokens.sum()

    return step


def targets_that_begin_with_what_is_ignored__no_note():
    """The prompt's share is no padding."""
    rows = [torch.cat((torch.full((4 + i % 40,), -100), torch.arange(60 - i % 40))) for i in range(64)]
    data = TensorDataset(torch.stack(rows), torch.randint(1, 90, (64, 64)))
    return on_texts(DataLoader(data, 8), lambda batch: batch[1])


def a_triangle__no_note():
    masks = torch.ones(8, 8, dtype=torch.long).tril()
    data = TensorDataset(masks.repeat(8, 1), torch.randint(1, 90, (64, 8)))
    return on_texts(DataLoader(data, 8), lambda batch: batch[1])


def rows_times_the_longest_are_counted__no_note():
    texts = [torch.arange(1, 90 if number % 11 == 5 else 6 + number * 7 % 9) for number in range(200)]

    class Budget(Sampler):
        def __iter__(self):
            batches, rows = [], []
            for index in sorted(range(len(texts)), key=lambda each: len(texts[each])):
                if rows and (len(rows) + 1) * len(texts[index]) > 160:
                    batches.append(rows)
                    rows = []
                rows.append(index)
            yield from (batches[each] for each in torch.randperm(len(batches)))

    def collate(rows):
        return pad_sequence(rows, batch_first=True)

    return on_texts(DataLoader(texts, batch_sampler=Budget(), collate_fn=collate))
