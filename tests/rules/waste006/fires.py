import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Sampler

from tests.rules.programs import on_texts
from tests.rules.waste006.silent import _to

TEXTS = [torch.arange(1, 5 + number * 7 % 13) for number in range(64)]


def a_batch_with_its_mask():
    data = [
        {"input_ids": _to(48, [row])[0], "attention_mask": _to(48, [torch.ones_like(row)])[0]}
        for row in TEXTS
    ]
    return on_texts(DataLoader(data, 8), lambda batch: batch["input_ids"])  # WASTE006


def padding_in_front():
    def collate(rows):  # WASTE006
        return _to(64, [row.flip(0) for row in rows]).flip(1)

    return on_texts(DataLoader(TEXTS, 8, collate_fn=collate))


def long_beside_short():
    """As wide as the longest of each batch, which is one of eight."""
    texts = [torch.arange(1, 81 if number % 8 == 5 else 9) for number in range(64)]

    def collate(rows):
        return pad_sequence(rows, batch_first=True)

    return on_texts(DataLoader(texts, 8, collate_fn=collate))  # WASTE006


def graphs_as_a_matrix_of_edges():
    graphs = [torch.arange(1, 41 if number % 8 == 5 else 9) for number in range(64)]

    def collate(rows):
        nodes = pad_sequence(rows, batch_first=True)
        return nodes, (nodes[:, :, None] > nodes[:, None]).float()

    return on_texts(DataLoader(graphs, 8, collate_fn=collate), lambda batch: batch[0])  # WASTE006


def one_width_for_a_gpu__rehearsal():
    def collate(rows):  # WASTE006
        return _to(64, rows)

    model = nn.Embedding(90, 8, device="cuda")
    batches = iter(DataLoader(TEXTS * 9, 8, collate_fn=collate))
    return lambda: model(next(batches).to("cuda")).sum().backward()


def lengths_counted_where_batches_are_padded():
    texts = [torch.arange(1, 90 if number % 11 == 5 else 6 + number * 7 % 9) for number in range(200)]

    class Budget(Sampler):
        def __iter__(self):
            yield from self._full(torch.randperm(len(texts)).tolist())

        def _full(self, order):
            rows, many = [], 0
            for index in order:
                if rows and many + len(texts[index]) > 160:  # WASTE006
                    yield rows
                    rows, many = [], 0
                rows.append(index)
                many += len(texts[index])

    def collate(rows):
        return pad_sequence(rows, batch_first=True)

    return on_texts(DataLoader(texts, batch_sampler=Budget(), collate_fn=collate))
