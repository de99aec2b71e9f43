import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import trained_once


def _dropping():
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 3))


def decorated_function_and_a_loss():
    model, count = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten()), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    images, wanted = torch.rand(8, 3, 4, 4), torch.rand(8, 16)

    @torch.no_grad()
    def score(x, y):
        total = torch.zeros(())
        for xs, ys in zip(x.split(4), y.split(4), strict=True):
            total += F.l1_loss(model(xs), ys, reduction="sum")  # CFG010
        return total / len(y)

    def step():
        trained_once(model, optimizer, torch.rand(4, 3, 4, 4))
        count[0] += 1
        if count[0] % 4 == 0:
            score(images, wanted)

    return step


def block_in_the_loop_that_counts_correct_answers():
    model, count = _dropping(), [0]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batches = [(torch.rand(4, 8), torch.tensor([0, 1, 2, 0])) for _ in range(3)]

    def step():
        x, y = torch.rand(4, 8), torch.tensor([0, 1, 2, 0])
        optimizer.zero_grad()
        logits = model(x)
        F.cross_entropy(logits, y).backward()
        optimizer.step()
        count[0] += 1
        if count[0] % 5 == 0:
            right = 0
            with torch.no_grad():
                for x, y in batches:
                    logits = model(x)  # CFG010
                    right = right + (logits.argmax(1) == y).sum()

    return step


def helper_that_the_training_uses_too():
    model, count = _dropping(), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    held_out = torch.rand(4, 8), torch.tensor([0, 1, 2, 0])

    def loss_of(x, y):
        return F.cross_entropy(model(x), y)

    def step():
        optimizer.zero_grad()
        loss_of(torch.rand(4, 8), torch.tensor([0, 1, 2, 0])).backward()
        optimizer.step()
        count[0] += 1
        if count[0] % 3 == 0:
            with torch.inference_mode():
                loss_of(*held_out)  # CFG010

    return step


def gradients_are_off_in_the_caller():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(8, 8, num_layers=2, dropout=0.3, batch_first=True)
            self.out = nn.Linear(8, 1)

        def forward(self, x):
            return self.out(self.rnn(x)[0][:, -1])

    model, count = Encoder(), [0]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    val_loader = [(torch.rand(2, 5, 8), torch.rand(2, 1)) for _ in range(2)]

    def errors():
        found = []
        for x, y in val_loader:
            found.append((model(x) - y).abs().mean())  # CFG010
        return found

    def step():
        trained_once(model, optimizer, torch.rand(2, 5, 8))
        count[0] += 1
        if count[0] % 4 == 0:
            with torch.set_grad_enabled(False):
                errors()

    return step


def model_that_returns_its_loss_on_each_step():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.drop = nn.Linear(8, 3), nn.Dropout(0.1)

        def forward(self, x, y):
            logits = self.drop(self.body(x))
            return logits, F.cross_entropy(logits, y)

    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    y = torch.tensor([0, 1, 2, 0])
    x_val = torch.rand(4, 8)

    def step():
        optimizer.zero_grad()
        model(torch.rand(4, 8), y)[1].backward()
        optimizer.step()
        with torch.no_grad():
            logits, _ = model(x_val, y)  # CFG010
            return (logits.argmax(-1) == y).float().mean()

    return step


class _Scoring(nn.Module):
    """Compares what it computes itself."""

    def __init__(self):
        super().__init__()
        self.body, self.drop = nn.Linear(8, 3), nn.Dropout(0.1)

    def forward(self, x, labels=None):
        logits = self.drop(self.body(x))
        return logits, None if labels is None else F.cross_entropy(logits, labels)


def _beside(evaluate):
    model, count, y = _Scoring(), [0], torch.tensor([0, 1, 2, 0])
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.rand(4, 8), y)[1].backward()
        optimizer.step()
        count[0] += 1
        if count[0] % 4 == 0:
            evaluate(model, torch.rand(4, 8), y)

    return step


def loss_that_the_model_returns_beside_its_result():
    @torch.no_grad()
    def validate(model, held_out, wanted):
        _, loss = model(held_out, wanted)  # CFG010
        return loss

    return _beside(validate)


def loss_that_is_one_of_what_the_model_returns():
    @torch.no_grad()
    def evaluate(model, held_out, wanted):
        return sum(model(held_out, labels=wanted)[1].item() for _ in (1,))  # CFG010

    return _beside(evaluate)
