"""Parts of programs that cases of several files have in common: for rules, these are the user's."""

import functools
import itertools
import json
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.echo_group import ranks

EPOCH = 3


def trained_on_noise(forward, parameters, batches=None):
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    taken = [0]

    def step():
        x = batches(taken[0]) if batches is not None else torch.randn(4, 16)
        taken[0] += 1
        optimizer.zero_grad()
        forward(x).square().mean().backward()
        optimizer.step()

    return step


def optimized(model, kind=torch.optim.SGD, lr=1e-3, **more):
    return model, kind(model.parameters(), lr=lr, **more)


def trained_with(optimizer, loss_of):
    def step():
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()

    return step


def case_of(make, parts=tuple, **named):
    """A case that ``make`` makes of the function below, whose first arguments ``parts`` makes."""

    def of(part):
        def case():
            torch.manual_seed(0)
            made = parts()
            made = made if isinstance(made, tuple) else (made,)
            return make(functools.partial(part, *made), **named)

        return case

    return of


def losses(parts, lr=None):
    """A case of the function below, which makes a loss of what ``parts`` made: each step runs its
    backward, and one of SGD if there is ``lr``. Behind the loss it may return what it does not use.
    """
    return case_of(_backward, parts, lr=lr)


def _backward(loss_of, lr):
    def loss():
        given = loss_of()
        return given[0] if isinstance(given, tuple) else given

    if lr is None:
        return lambda: loss().backward()
    modules = nn.ModuleList(part for part in loss_of.args if isinstance(part, nn.Module))
    return trained_with(torch.optim.SGD(modules.parameters(), lr=lr), loss)


def trained_by(model, loss_of, optimizer=None):
    return trained_with(optimizer or torch.optim.SGD(model.parameters(), lr=1e-3), loss_of)


def stepped(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def trained_once(model, optimizer, x):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def trained_then(model, x, after):
    """Behind each step ``after`` gets its number, from 1."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(number):
        trained_once(model, optimizer, x)
        after(number)

    return numbered(step)


def with_a_scaler(**more):
    return *optimized(nn.Linear(8, 1)), torch.amp.GradScaler("cpu", **more)


def scaled_once(optimizer, scaler, loss, behind=lambda: None):
    """``behind`` comes between the backward and the step."""
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    behind()
    scaler.step(optimizer)
    scaler.update()


def looked_at(look, outputs=1, device="cuda"):
    """``look`` gets the model's output before the backward of its mean."""
    model, x = nn.Linear(8, outputs, device=device), torch.ones(4, 8, device=device)

    def step():
        out = model(x)
        look(out)
        out.mean().backward()

    return step


def scored(score, outputs=1, device="cuda"):
    """``score`` makes a loss of the model's output."""
    model, x = nn.Linear(8, outputs, device=device), torch.ones(4, 8, device=device)
    return lambda: score(model(x)).backward()


def behind_a_backward(after, device="cpu"):
    """``after`` gets the loss behind its backward."""
    model, x = nn.Linear(8, 1, device=device), torch.ones(4, 8, device=device)

    def step():
        loss = model(x).square().mean()
        loss.backward()
        after(loss)

    return step


def numbered(step, first=1):
    """``step`` with the number of its call."""
    numbers = itertools.count(first)
    return lambda: step(next(numbers))


def endless(loader):
    while True:
        yield from loader


def on_samples(dataset):
    """A step of a small model on rows of 8 numbers, which two workers that stay load."""
    loader = DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True)
    batches, model = endless(loader), nn.Linear(8, 1)

    def step():
        model(next(batches)).mean().backward()

    return step


LENGTHS, PAD = (12, 3, 6, 2), 8


def padded_texts(first=1):
    tokens = torch.randint(first, 8, (4, 12))
    for row, length in enumerate(LENGTHS):
        tokens[row, length:] = PAD
    return tokens


def classed_by(encode):
    """A class of each text, by what ``encode`` makes of the embedded tokens and their lengths."""
    torch.manual_seed(0)
    embed, out = nn.Embedding(9, 8, padding_idx=PAD), nn.LazyLinear(3)

    def step():
        x, classes = embed(padded_texts()), torch.tensor([0, 1, 2, 0])
        loss = functional.cross_entropy(out(encode(x, torch.tensor(LENGTHS))), classes)
        (loss + (x - 1).square().mean()).backward()  # a penalty, of which padding may be a part

    return step


def ranked(*sizes):
    ranks()
    layers = [torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:], strict=False)]
    return DistributedDataParallel(torch.nn.Sequential(*layers))


def gan():
    g = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 128))
    d = nn.Sequential(nn.Linear(128, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    return (
        g,
        d,
        torch.optim.Adam(g.parameters(), lr=1e-3),
        torch.optim.Adam(d.parameters(), lr=1e-3),
    )


def in_epochs(batch, after=lambda number: None):
    """A step of a small model on ``batch(number)``; ``after`` runs behind each."""
    torch.manual_seed(0)
    model, optimizer = optimized(nn.Linear(4, 1), lr=0.01)

    def step(number):
        inputs = batch(number - 1)
        (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % EPOCH == 0:
            after(number)

    return numbered(step)


def on_texts(loader, tokens_of=lambda batch: batch):
    torch.manual_seed(0)
    model, batches = nn.Sequential(nn.Embedding(90, 8), nn.Linear(8, 90)), endless(loader)

    def step():
        tokens = tokens_of(next(batches))
        out = model(tokens[:, :-1]).transpose(1, 2)
        functional.cross_entropy(out, tokens[:, 1:], ignore_index=0).backward()

    return step


class Scales(nn.Module):
    """Large and cheap: vectors that scale a number, through ``depth`` activations each."""

    def __init__(self, size=2**20):
        super().__init__()
        self.weights = nn.ParameterList([torch.ones(size) for _ in range(8)])

    def forward(self, x, depth=1):
        total = 0.0
        for weight in self.weights:
            out = weight * x
            for _ in range(depth):
                out = out.relu()
            total = total + out.mean()
        return total


def saving(config, schedule, lr=0.01):
    Path("config.json").write_text(json.dumps(config))
    optimizer = torch.optim.AdamW(nn.Linear(4, 1).parameters(), lr=lr)
    scheduler = schedule(optimizer)

    def step():
        optimizer.step()
        parts = {"optimizer": optimizer.state_dict()}
        if scheduler is not None:
            scheduler.step()
            parts["scheduler"] = scheduler.state_dict()
        torch.save(parts, "last.pt")

    return step


def accumulating(backward, make=torch.optim.SGD, finish=lambda model: None):
    loader = DataLoader(TensorDataset(torch.randn(16, 8), torch.randn(16, 4)), batch_size=2)
    model = torch.nn.Linear(8, 4)
    optimizer = make(model.parameters(), lr=1e-3)

    def step():
        for number, (x, y) in enumerate(loader):
            backward(model(x), y)
            if number % 4 == 3:
                finish(model)
                optimizer.step()
                optimizer.zero_grad()

    return step


def on_ranks(after):
    ranks()
    return trained_then(nn.Linear(8, 4), torch.randn(8, 8), after)


def with_losses(after):
    model, optimizer = optimized(nn.Linear(4, 2))

    def step(number):
        loss = model(torch.randn(4, 4)).square().mean()
        stepped(optimizer, loss)
        after(number, loss.detach())

    return numbered(step, 0)


class Made(Dataset):
    """Samples that ``make`` makes of their numbers."""

    def __init__(self, make, length=4000):
        self.make, self.length = make, length

    def __len__(self):
        return self.length

    def __getitem__(self, number):
        return self.make(number)


def fed(loader, device="cpu", width=8, move=lambda x: x, behind=lambda: None):
    """A forward and a backward of each batch, or of its first tensor."""
    model, batches = nn.Linear(width, 1, device=device), iter(loader)

    def step():
        batch = next(batches)
        x = move(batch[0] if isinstance(batch, list) else batch)
        model(x).mean().backward()
        behind()

    return step


class Texts(Dataset):
    """Short ones, but for a few at the end."""

    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, number):
        return torch.full((self.lengths[number],), number % 50 + 1)


class Tagger(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.embedding = nn.Embedding(64, width)
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, 8)

    def forward(self, tokens):
        return self.outer(self.inner(self.embedding(tokens)).relu())


def on_stream(stream):
    model = nn.Linear(8, 1)
    return trained_by(model, lambda: model(next(stream)).square().mean())


def regressed(loss_of, out=1, rows=16, shape=None):
    """``loss_of`` gets a model's outputs and targets, of one dimension unless there is ``shape``."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, out))

    def loss():
        x = torch.randn(rows, 4)
        return loss_of(model(x), x.sum(1).view(shape or rows))

    return trained_by(model, loss, torch.optim.SGD(model.parameters(), lr=0.01))


def classified(loss_of, *last):
    """``loss_of`` gets the scores of a model that ends in ``last``, and classes."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 5), *last)

    def loss():
        x = torch.randn(16, 4)
        return loss_of(model(x), (x.sum(1) > 0).long())

    return trained_by(model, loss, torch.optim.SGD(model.parameters(), lr=0.1))


def ignored_from(kept, generator):
    labels = torch.randint(0, 7, (2, 12), generator=generator)
    labels[:, kept:] = -100
    return labels


def micro_batches(loss_of, counts=(12, 2, 7, 1), clear=False):
    """A micro-batch for each of the ``counts`` of its tokens, one step for all, or for each."""
    torch.manual_seed(0)
    model, optimizer = optimized(nn.Sequential(nn.Embedding(9, 8), nn.Linear(8, 7)), lr=0.1)
    generator = torch.Generator().manual_seed(1)

    def step():
        for number, kept in enumerate(counts, 1):
            tokens = torch.randint(0, 9, (2, 12), generator=generator)
            loss_of(model(tokens), ignored_from(kept, generator), len(counts)).backward()
            if clear or number == len(counts):
                optimizer.step()
                optimizer.zero_grad()

    return step


def speller(**embedding):
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(9, 8, **embedding), nn.Linear(8, 9))


def padded_frames(lengths):
    return torch.randn(4, 12, 3) * (torch.arange(12) < lengths[:, None]).unsqueeze(-1)


class Decoder(nn.Module):
    def __init__(self, causal=True, shifts=False, heads=1):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = nn.Embedding(19, 8), nn.Embedding(12, 8)
        self.mixed = nn.Linear(8, 24)
        self.heads = nn.ModuleList(nn.Linear(8, 19) for _ in range(heads))
        self.causal, self.shifts = causal, shifts

    def forward(self, tokens):
        x = self.tokens(tokens)
        if self.shifts:
            x = functional.pad(x, (0, 0, 1, 0))[:, :-1]
        x = x + self.places(torch.arange(tokens.shape[1]))
        query, key, value = self.mixed(x).chunk(3, -1)
        x = x + functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        out = [head(x) for head in self.heads]
        return out[0] if len(out) == 1 else out


class Attending(nn.Module):
    """``attend`` gets queries, keys and values; positions begin anew where ``places`` do."""

    def __init__(self, attend):
        super().__init__()
        torch.manual_seed(0)
        self.tokens, self.places = nn.Embedding(19, 8), nn.Embedding(12, 8)
        self.mixed, self.head, self.attend = nn.Linear(8, 24), nn.Linear(8, 19), attend

    def forward(self, tokens, places=None):
        places = torch.arange(tokens.shape[1]) if places is None else places
        x = self.tokens(tokens) + self.places(places)
        return self.head(x + self.attend(*self.mixed(x).chunk(3, -1)))


def fed_by(model, batch, loss=functional.cross_entropy, rate=1e-3):
    """``batch`` makes inputs and targets of a step."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=rate)

    def loss_of():
        x, y = batch()
        return loss(model(x), y)

    return trained_with(optimizer, loss_of)
