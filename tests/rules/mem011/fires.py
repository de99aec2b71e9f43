import gc

import torch
from torch import nn

from tests.rules.programs import optimized

MIB = 2**20
MEMORY_LIMIT = 256 * MIB


def the_same_three_lines_again():
    model, optimizer = optimized(nn.Linear(8, 1))

    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        try:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            gc.collect()
            loss.backward()  # MEM011
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

    return step


def scaled_loss_again_after_the_block():
    model, optimizer = optimized(nn.Linear(8, 1))
    scaler = torch.amp.GradScaler("cpu", enabled=False)

    def step():
        optimizer.zero_grad()
        loss, failed = model(torch.ones(4, 8)).square().mean(), False
        try:
            scaler.scale(loss).backward()
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            failed = True
        if failed:
            optimizer.zero_grad()
            scaler.scale(loss).backward()  # MEM011
        optimizer.step()

    return step


def exception_kept_in_a_list():
    model, errors = nn.Linear(8, 1), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
        except torch.OutOfMemoryError as error:
            errors.append(error)  # MEM011

    return step


def retry_that_really_happens__rehearsal():
    weight = nn.Parameter(torch.ones(1024, device="cuda"))  # one product for each element: the memory is what counts here
    optimizer = torch.optim.SGD([weight], lr=1e-3)

    def attempt(rows):
        optimizer.zero_grad()
        (weight * torch.ones(rows, 1024, device="cuda")).square().mean().backward()
        optimizer.step()

    def step():
        try:
            attempt(40_000)
        except torch.OutOfMemoryError:
            attempt(2_000)  # MEM011
        attempt(1_000)

    return step


def a_smaller_try_by_another_function_inside_the_handler():
    model, optimizer = optimized(nn.Linear(8, 1))

    def accumulate(x, weight=1.0):
        (model(x).square().mean() * weight).backward()

    def in_halves(x):
        optimizer.zero_grad()
        for part in x.chunk(2):
            accumulate(part, 0.5)

    def step():
        x = torch.ones(4, 8)
        optimizer.zero_grad()
        try:
            accumulate(x)
        except torch.OutOfMemoryError:
            in_halves(x)  # MEM011
        optimizer.step()

    return step
