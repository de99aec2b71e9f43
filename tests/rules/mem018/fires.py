import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.rules.mem018.silent import _pad
from tests.rules.programs import Tagger, Texts, optimized, trained_once

MEMORY_LIMIT = 160 << 20


LENGTHS = [8 + number % 5 for number in range(396)] + [12000] * 4


def longest_texts_that_fit_and_need_far_more__rehearsal():
    model, optimizer = optimized(Tagger().cuda(), lr=0.01)
    lengths = [8 + number % 5 for number in range(396)] + [4600] * 4
    batches = iter(DataLoader(Texts(lengths), batch_size=4, collate_fn=_pad))

    def step():
        tokens = next(batches).cuda()  # MEM018
        trained_once(model, optimizer, tokens)

    return step


def texts_of_one_length_but_a_few_that_are_drawn_at_random__rehearsal():
    model, optimizer = optimized(Tagger().cuda(), torch.optim.AdamW, lr=0.01)
    lengths = [9] * 2000 + [10] * 2000
    lengths[1234] = 40000
    torch.manual_seed(1)
    loader = DataLoader(Texts(lengths), batch_size=4, shuffle=True, collate_fn=_pad)

    def forever():
        while True:
            yield from loader  # MEM018

    batches = forever()

    def step():
        tokens = next(batches).cuda()
        trained_once(model, optimizer, tokens)

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
        trained_once(model, optimizer, nodes)

    return step
