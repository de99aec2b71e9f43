"""Small trainers, each with one way to meet a fault. Every function makes a step."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    """A small regression, checkpointed every five steps."""

    def __init__(self, *, norm=False, dropout=False, scaler=False, clean=False):
        torch.manual_seed(1)
        x = torch.randn(64, 8)
        self.loader = DataLoader(TensorDataset(x, x.sum(1)), batch_size=16, shuffle=True)
        middle = [nn.BatchNorm1d(16)] if norm else [nn.Dropout()] if dropout else []
        self.model = nn.Sequential(
            nn.Linear(8, 16), *middle, nn.ReLU(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.scaler = torch.amp.GradScaler("cpu", enabled=scaler)
        self.batches = self.endless()
        self.n = 0

    def endless(self):
        while True:
            yield from self.loader

    def loss(self, batch):
        x, y = batch
        return (self.model(x).squeeze(1) - y).pow(2).mean()

    def update(self, loss):
        loss.backward()
        self.optimizer.step()

    def save(self):
        self.n += 1
        if self.n % 5 == 0:
            torch.save(
                {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
                f"ckpt_{self.n}.pt",
            )


# -- non-finite values -----------------------------------------------------------------------------


def unguarded():
    trainer = Trainer()

    def step():
        trainer.optimizer.zero_grad()
        trainer.update(trainer.loss(next(trainer.batches)))
        trainer.save()

    return step


def skips_a_bad_loss():
    trainer = Trainer()

    def step():
        trainer.optimizer.zero_grad()
        loss = trainer.loss(next(trainer.batches))
        if torch.isfinite(loss):
            trainer.update(loss)
        trainer.save()

    return step


def raises_on_a_bad_loss():
    trainer = Trainer()

    def step():
        trainer.optimizer.zero_grad()
        loss = trainer.loss(next(trainer.batches))
        if not torch.isfinite(loss):
            raise FloatingPointError(f"loss is {loss.item()}")
        trainer.update(loss)
        trainer.save()

    return step


def raises_on_a_bad_gradient_norm():
    trainer = Trainer()

    def step():
        trainer.optimizer.zero_grad()
        trainer.loss(next(trainer.batches)).backward()
        nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0, error_if_nonfinite=True)
        trainer.optimizer.step()
        trainer.save()

    return step


def checks_after_the_update():
    """The guard is there, and too late."""
    trainer = Trainer()

    def step():
        trainer.optimizer.zero_grad()
        loss = trainer.loss(next(trainer.batches))
        trainer.update(loss)
        if not torch.isfinite(loss):
            raise FloatingPointError("loss is NaN")

    return step


def skips_but_the_batch_norm_remembers():
    trainer = Trainer(norm=True)

    def step():
        trainer.optimizer.zero_grad()
        loss = trainer.loss(next(trainer.batches))
        if torch.isfinite(loss):
            trainer.update(loss)

    return step


def scaled():
    """GradScaler skips an update with infinite gradients."""
    trainer = Trainer(scaler=True)

    def step():
        trainer.optimizer.zero_grad()
        trainer.scaler.scale(trainer.loss(next(trainer.batches))).backward()
        trainer.scaler.step(trainer.optimizer)
        trainer.scaler.update()
        trainer.save()

    return step


def cleans_its_batch():
    trainer = Trainer()

    def step():
        x, y = next(trainer.batches)
        trainer.optimizer.zero_grad()
        trainer.update(trainer.loss((x.nan_to_num(0.0), y)))
        trainer.save()

    return step


def rolls_back():
    """Notices one step late, and takes the weights of before."""
    trainer = Trainer()
    good = {}

    def step():
        if not all(bool(parameter.isfinite().all()) for parameter in trainer.model.parameters()):
            trainer.model.load_state_dict(good)
            trainer.optimizer.state.clear()
        good.update({name: value.clone() for name, value in trainer.model.state_dict().items()})
        trainer.optimizer.zero_grad()
        trainer.update(trainer.loss(next(trainer.batches)))

    return step


def carries_a_hidden_state():
    """The guard skips the step, but what was carried over poisons every later one."""
    torch.manual_seed(1)
    cell, optimizer = nn.GRUCell(4, 4), None
    optimizer = torch.optim.SGD(cell.parameters(), lr=0.1)
    carried = [torch.zeros(2, 4)]

    def step():
        optimizer.zero_grad()
        hidden = cell(torch.ones(2, 4), carried[0])
        carried[0] = hidden.detach()
        loss = hidden.pow(2).mean()
        if torch.isfinite(loss):
            loss.backward()
            optimizer.step()

    return step


def masked():
    """A mask of minus infinity is part of every checkpoint and of the module: nothing to do with
    the fault.
    """
    trainer = Trainer()
    trainer.model.register_buffer("mask", torch.full((2, 2), float("-inf")).triu(1))

    def step():
        trainer.optimizer.zero_grad()
        loss = trainer.loss(next(trainer.batches))
        if torch.isfinite(loss):
            trainer.update(loss)
        trainer.save()

    return step


# -- out of memory ---------------------------------------------------------------------------------


def unhandled():
    return unguarded()


def retries_backward():
    """As in the seed: the same three lines once more."""
    trainer = Trainer()

    def step():
        trainer.optimizer.zero_grad()
        loss = trainer.loss(next(trainer.batches))
        try:
            trainer.update(loss)
        except torch.cuda.OutOfMemoryError:
            trainer.update(loss)

    return step


def retries_with_what_was_accumulated():
    trainer = Trainer()

    def step():
        batch = next(trainer.batches)
        trainer.optimizer.zero_grad()
        try:
            trainer.update(trainer.loss(batch))
        except torch.cuda.OutOfMemoryError:
            trainer.update(trainer.loss(batch))

    return step


def retries_on_a_kept_graph():
    trainer = Trainer()

    def step():
        trainer.optimizer.zero_grad()
        loss = trainer.loss(next(trainer.batches))
        for _ in range(2):
            try:
                loss.backward(retain_graph=True)
                break
            except torch.cuda.OutOfMemoryError:
                pass
        trainer.optimizer.step()

    return step


def retries_rightly(**more):
    trainer = Trainer(**more)

    def attempt(batch):
        trainer.optimizer.zero_grad()
        try:
            trainer.update(trainer.loss(batch))
        except torch.cuda.OutOfMemoryError:
            return False
        return True

    def step():
        batch = next(trainer.batches)
        if not attempt(batch) and not attempt(batch):
            raise RuntimeError("out of memory twice")
        trainer.save()

    return step


def retries_with_dropout():
    return retries_rightly(dropout=True)


def retries_inside_the_handler():
    trainer = Trainer()

    def step():
        batch = next(trainer.batches)
        trainer.optimizer.zero_grad()
        try:
            trainer.update(trainer.loss(batch))
        except torch.cuda.OutOfMemoryError:
            trainer.optimizer.zero_grad()
            trainer.update(trainer.loss(batch))

    return step


def drops_the_batch():
    trainer = Trainer()

    def step():
        trainer.optimizer.zero_grad()
        try:
            trainer.update(trainer.loss(next(trainer.batches)))
        except torch.cuda.OutOfMemoryError:
            trainer.optimizer.zero_grad()

    return step


def drops_the_batch_and_keeps_its_gradients():
    trainer = Trainer()

    def step():
        try:
            trainer.update(trainer.loss(next(trainer.batches)))
        except torch.cuda.OutOfMemoryError:
            return
        trainer.optimizer.zero_grad()

    return step


def saves_and_stops():
    trainer = Trainer()

    def step():
        trainer.optimizer.zero_grad()
        try:
            trainer.update(trainer.loss(next(trainer.batches)))
        except torch.cuda.OutOfMemoryError:
            torch.save({"model": trainer.model.state_dict()}, "rescue.pt")
            raise

    return step


def accumulates():
    """Two micro-batches for each update; after an error both are done again."""
    trainer = Trainer()

    def attempt(batches):
        trainer.optimizer.zero_grad()
        try:
            for batch in batches:
                (trainer.loss(batch) / 2).backward()
        except torch.cuda.OutOfMemoryError:
            return False
        return True

    def step():
        batches = [next(trainer.batches), next(trainer.batches)]
        if not attempt(batches):
            attempt(batches)
        trainer.optimizer.step()

    return step
