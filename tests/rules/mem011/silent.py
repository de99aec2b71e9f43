import torch
from torch import nn

from tests.rules.programs import optimized, trained_once


def flag_then_fresh_forward_with_smaller_parts():
    model, optimizer = optimized(nn.Linear(8, 1))

    def step():
        x, failed = torch.ones(4, 8), False
        optimizer.zero_grad()
        try:
            model(x).square().mean().backward()
        except torch.OutOfMemoryError:
            failed = True
        if failed:
            torch.cuda.empty_cache()
            optimizer.zero_grad()
            for part in x.chunk(2):
                loss = model(part).square().mean() / 2
                loss.backward()
        optimizer.step()

    return step


def attempts_in_a_loop_each_from_zero():
    model, optimizer = optimized(nn.Linear(8, 1))

    def step():
        for parts in (1, 2, 4):
            try:
                optimizer.zero_grad()
                for part in torch.ones(4, 8).chunk(parts):
                    (model(part).square().mean() / parts).backward()
                optimizer.step()
                break
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()

    return step


def text_of_the_error_kept():
    model, errors = nn.Linear(8, 1), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
        except torch.OutOfMemoryError as error:
            errors.append(str(error))

    return step


def second_backward_of_another_error():
    model, optimizer = optimized(nn.Linear(8, 1))

    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        try:
            loss.backward()
        except ValueError:
            loss.backward()
        optimizer.step()

    return step


def handler_of_a_function_that_no_step_runs():
    model, optimizer = optimized(nn.Linear(8, 1))

    def another(loss):
        try:
            loss.backward()
        except torch.OutOfMemoryError:
            loss.backward()

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        return another

    return step


def cache_emptied_on_every_step_which_is_sync009__cuda():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        model(torch.ones(4, 8, device="cuda")).mean().backward()
        torch.cuda.empty_cache()

    return step


def other_errors_raised_from_the_same_handler():
    model, optimizer = optimized(nn.Linear(8, 1))

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
        except RuntimeError as error:
            if "out of memory" in str(error):
                torch.cuda.empty_cache()
                return
            else:
                raise error
        optimizer.step()

    return step


def another_call_of_the_same_name_in_the_handler():
    import subprocess

    class Engine:
        def __init__(self):
            self.model = nn.Linear(8, 1)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

        def run(self):
            self.optimizer.zero_grad()
            self.model(torch.ones(4, 8)).square().mean().backward()
            self.optimizer.step()

    engine = Engine()

    def step():
        try:
            engine.run()
        except torch.OutOfMemoryError:
            subprocess.run(["nvidia-smi"], check=False)
            raise

    return step


def broad_handler_that_is_not_about_memory():
    model, skipped, memory = nn.Linear(8, 1), [], []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
        except RuntimeError as error:
            memory.clear()  # the replay memory of an agent
            skipped.append(str(error))
            optimizer.zero_grad()
            return
        optimizer.step()

    return step


def every_try_takes_less():
    model, optimizer = optimized(nn.Linear(8, 1))
    counts = {"parts": 1}

    def attempt(x):
        optimizer.zero_grad()
        for part in x.chunk(counts["parts"]):
            model(part).square().mean().backward()
        return True

    def gradients(x):
        while True:
            try:
                return attempt(x)
            except torch.OutOfMemoryError:
                counts["parts"] *= 2

    def step():
        gradients(torch.ones(4, 8))
        optimizer.step()

    return step


def exception_kept_without_its_frames():
    model, failures = nn.Linear(8, 1), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
        except torch.OutOfMemoryError as error:
            error.__traceback__ = None
            failures.append((error, "skipped"))

    return step
