import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import numbered, optimized, trained_then

LABELS = torch.tensor([0, 1, 2, 0])


def _every_fourth(model, size, evaluate):
    return trained_then(model, torch.rand(size), lambda number: evaluate() if number % 4 == 0 else None)


def decorated_function_and_a_loss():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
    images, wanted = torch.rand(8, 3, 4, 4), torch.rand(8, 16)

    @torch.no_grad()
    def score():
        total = torch.zeros(())
        for xs, ys in zip(images.split(4), wanted.split(4), strict=True):
            total += F.l1_loss(model(xs), ys, reduction="sum")  # CFG010
        return total / len(wanted)

    return _every_fourth(model, (4, 3, 4, 4), score)


def _classifying(after):
    model, optimizer = optimized(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 3)))

    def loss_of(x, y):
        return F.cross_entropy(model(x), y)

    def step(number):
        optimizer.zero_grad()
        loss_of(torch.rand(4, 8), LABELS).backward()
        optimizer.step()
        if number % 3 == 0:
            after(model, loss_of)

    return numbered(step)


def block_in_the_loop_that_counts_correct_answers():
    batches = [(torch.rand(4, 8), LABELS) for _ in range(3)]

    def count(model, _):
        right = 0
        with torch.no_grad():
            for x, y in batches:
                logits = model(x)  # CFG010
                right = right + (logits.argmax(1) == y).sum()

    return _classifying(count)


def helper_that_the_training_uses_too():
    held_out = torch.rand(4, 8), LABELS

    def validate(_, loss_of):
        with torch.inference_mode():
            loss_of(*held_out)  # CFG010

    return _classifying(validate)


def gradients_are_off_in_the_caller():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(8, 8, num_layers=2, dropout=0.3, batch_first=True)
            self.out = nn.Linear(8, 1)

        def forward(self, x):
            return self.out(self.rnn(x)[0][:, -1])

    model = Encoder()
    val_loader = [(torch.rand(2, 5, 8), torch.rand(2, 1)) for _ in range(2)]

    def errors():
        found = []
        for x, y in val_loader:
            found.append((model(x) - y).abs().mean())  # CFG010
        return found

    def validate():
        with torch.set_grad_enabled(False):
            errors()

    return _every_fourth(model, (2, 5, 8), validate)


class _Scoring(nn.Module):
    """Compares what it computes itself."""

    def __init__(self):
        super().__init__()
        self.body, self.drop = nn.Linear(8, 3), nn.Dropout(0.1)

    def forward(self, x, labels=None):
        logits = self.drop(self.body(x))
        return logits, None if labels is None else F.cross_entropy(logits, labels)


def _beside(evaluate):
    model, held_out = _Scoring(), torch.rand(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(number):
        optimizer.zero_grad()
        model(torch.rand(4, 8), LABELS)[1].backward()
        optimizer.step()
        if number % 4 == 0:
            evaluate(model, held_out, LABELS)

    return numbered(step)


def model_that_returns_its_loss_on_each_step():
    model, x_val = _Scoring(), torch.rand(4, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.rand(4, 8), LABELS)[1].backward()
        optimizer.step()
        with torch.no_grad():
            logits, _ = model(x_val, LABELS)  # CFG010
            return (logits.argmax(-1) == LABELS).float().mean()

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
