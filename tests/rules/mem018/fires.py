"""MEM018 must report exactly the marked lines."""

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

MEMORY_LIMIT = 160 << 20


class _Texts(Dataset):
    """Short ones, but for a few at the end."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, number):
        return torch.full((self.lengths[number],), number % 50 + 1)


class _Tagger(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.embedding = nn.Embedding(64, width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 8)

    def forward(self, tokens):
        return self.outer(self.inner(self.embedding(tokens)).relu())


def _pad(texts):
    return pad_sequence(texts, batch_first=True)


LENGTHS = [8 + number % 5 for number in range(396)] + [12000] * 4


def _trained(model, tokens, optimizer):
    loss = model(tokens).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def longest_texts_at_the_end_of_the_epoch__rehearsal():
    model = _Tagger().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(DataLoader(_Texts(LENGTHS), batch_size=4, collate_fn=_pad))

    def step():
        tokens = next(batches).cuda()  # MEM018
        _trained(model, tokens, optimizer)

    return step


def texts_of_one_length_but_a_few_that_are_drawn_at_random__rehearsal():
    model = _Tagger().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    lengths = [9] * 2000 + [10] * 2000
    lengths[1234] = 40000
    torch.manual_seed(1)
    loader = DataLoader(_Texts(lengths), batch_size=4, shuffle=True, collate_fn=_pad)

    def forever():
        while True:
            yield from loader  # MEM018

    batches = forever()

    def step():
        tokens = next(batches).cuda()
        _trained(model, tokens, optimizer)

    return step


class _Graphs(Dataset):
    """Nodes that are joined to one matrix."""

    def __len__(self):
        return 200

    def __getitem__(self, number):
        return {"nodes": torch.ones(40 if number < 190 else 9000, 16), "label": number % 2}


def _join(graphs):
    return torch.cat([each["nodes"] for each in graphs])


def graphs_that_are_joined__rehearsal():
    model = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    batches = iter(DataLoader(_Graphs(), batch_size=5, collate_fn=_join))

    def step():
        nodes = next(batches).cuda()  # MEM018
        _trained(model, nodes, optimizer)

    return step
