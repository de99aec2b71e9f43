import itertools
import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import trained_with


def encoder_once_for_each_head():
    encoder = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 64))
    heads = nn.ModuleList([nn.Linear(64, 10), nn.Linear(64, 2)])

    def loss():
        x, y = torch.randn(64, 32), torch.randint(0, 2, (64,))
        first = F.cross_entropy(heads[0](encoder(x)), y)
        second = F.cross_entropy(heads[1](encoder(x)), y)  # WASTE005
        return first + second

    return trained_with(torch.optim.AdamW([*encoder.parameters(), *heads.parameters()]), loss)


def one_result_of_each_of_two_calls():
    body, gate, head = nn.Linear(64, 256), nn.Linear(256, 8), nn.Linear(256, 16)

    def both(x):
        h = body(x).relu()
        return head(h), gate(h).softmax(1).square().sum()

    def loss():
        x = torch.randn(128, 64)
        out, _ = both(x)  # WASTE002
        _, balance = both(x)  # WASTE005
        return out.square().mean() + balance

    return trained_with(torch.optim.SGD([*body.parameters(), *gate.parameters(), *head.parameters()], lr=0.1), loss)


def the_part_before_the_dropout():
    body, head = nn.Linear(64, 256), nn.Linear(256, 256)

    def noisy(x):
        h = body(x).relu()
        return head(F.dropout(h, 0.1))

    def loss():
        x = torch.randn(128, 64)
        one = noisy(x)
        other = noisy(x)  # WASTE005
        return (one - other).square().mean()

    return trained_with(torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1), loss)


def _evaluated_now_and_then(evaluate):
    model, other = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)), nn.Linear(64, 64)
    optimizer, steps = torch.optim.SGD([*model.parameters(), *other.parameters()]), itertools.count(1)
    table = torch.randn(600, 64)

    def step():
        optimizer.zero_grad()
        rows = table[torch.randint(600, (32,))]
        (model(rows) - other(rows)).square().mean().backward()
        optimizer.step()
        if next(steps) % 11 == 0:
            evaluate(model, other, table)

    return step


def catalogue_encoded_for_each_query():
    @torch.no_grad()
    def evaluate(model, other, table):
        return [
            (model(table) @ other(query)).topk(5).indices  # WASTE005
            for query in torch.randn(40, 64)
        ]

    return _evaluated_now_and_then(evaluate)


def source_encoded_for_each_word_of_the_answer():
    def _encoded(model, table):
        return model(table * 2.0)

    def evaluate(model, other, table):
        word = torch.zeros(64)
        for _ in range(20):
            with torch.no_grad():
                memory = _encoded(model, table)  # WASTE005
                word = other(word + memory.mean(0))

    return _evaluated_now_and_then(evaluate)


def encoder_in_a_model_that_decodes_word_by_word():
    class _Translator(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.GRU(16, 64, batch_first=True)
            self.words, self.out = nn.Embedding(10, 64), nn.Linear(64, 10)

        def forward(self, heard, words):
            memory, _ = self.encode(heard)  # no line of a loop
            return self.out(self.words(words) + memory.mean(1, keepdim=True))

    model, steps = _Translator(), itertools.count(1)
    optimizer = torch.optim.Adam(model.parameters())

    @torch.inference_mode()
    def transcribe(heard):
        words = torch.ones(len(heard), 1, dtype=torch.long)
        while words.shape[1] < 14:
            following = model(heard, words)[:, -1:].argmax(-1)  # WASTE005
            words = torch.cat([words, following], 1)

    def step():
        heard = torch.randn(8, 40, 16)
        optimizer.zero_grad()
        model(heard, torch.randint(10, (8, 4))).square().mean().backward()
        optimizer.step()
        if next(steps) % 11 == 0:
            transcribe(heard)

    return step
