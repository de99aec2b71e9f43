"""MEM011 must report exactly the marked lines."""

import gc

import torch
from torch import nn

MIB = 2**20
MEMORY_LIMIT = 256 * MIB


def the_same_three_lines_again():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

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
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
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


def whole_step_again_inside_except():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def train_on_batch(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    def step():
        try:
            train_on_batch(torch.ones(4, 8))
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            train_on_batch(torch.ones(2, 8))  # MEM011

    return step


def fresh_forward_onto_old_gradients():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        x, retry = torch.ones(4, 8), False
        try:
            model(x).square().mean().backward()
        except torch.OutOfMemoryError:
            retry = True
        if retry:
            for part in x.chunk(2):
                model(part).square().mean().backward()  # MEM011
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


def batch_skipped_with_its_gradients():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        except torch.OutOfMemoryError:  # MEM011
            print("skipped a batch")

    return step


def step_on_half_a_backward():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
        except torch.OutOfMemoryError:  # MEM011
            torch.cuda.empty_cache()
        optimizer.step()

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


def cache_emptied_every_fourth_step__cuda():
    model, count = nn.Linear(8, 1, device="cuda"), [0]

    def step():
        count[0] += 1
        model(torch.ones(4, 8, device="cuda")).mean().backward()
        if count[0] % 4 == 0:
            torch.cuda.empty_cache()  # MEM011

    return step


def handlers_of_an_episode_trainer():
    class Trainer:
        def __init__(self):
            self.model, self.last_error = nn.Linear(8, 1), None
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

        def _update(self, loss):
            try:
                loss.backward()
                self.optimizer.step()
            except torch.cuda.OutOfMemoryError as error:
                self.last_error = error  # MEM011
                torch.cuda.empty_cache()
                loss.backward()  # MEM011
                self.optimizer.step()

        def _episode(self):
            for _ in range(2):
                self.optimizer.zero_grad()
                self._update(self.model(torch.ones(4, 8)).square().mean())

        def step(self):
            try:
                self._episode()
            except torch.cuda.OutOfMemoryError:
                torch.cuda.empty_cache()
                self._episode()  # MEM011

    return Trainer().step


def the_same_backward_again_by_a_loop():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        for attempt in range(2):
            try:
                loss.backward()  # MEM011
                optimizer.step()
                break
            except torch.OutOfMemoryError:
                if attempt:
                    raise
                torch.cuda.empty_cache()

    return step


def smaller_parts_on_half_accumulated_gradients():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def add_up(x, parts):
        for part in x.chunk(parts):
            (model(part).square().sum() / len(x)).backward()

    def step():
        parts, done = 1, False
        optimizer.zero_grad()
        while not done:
            try:
                add_up(torch.ones(4, 8), parts)
                done = True
            except torch.OutOfMemoryError:  # MEM011
                parts *= 2
        optimizer.step()

    return step


def attempts_without_clearing_and_a_break_behind():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        while True:  # MEM011
            try:
                model(torch.ones(4, 8)).square().mean().backward()
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                continue
            break
        optimizer.step()
        optimizer.zero_grad()

    return step


def every_error_taken_for_memory():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        try:
            optimizer.zero_grad()
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
        except RuntimeError:  # MEM011
            print("OOM, batch skipped")
            optimizer.zero_grad()

    return step


def bare_except_that_frees_the_cache():
    class Trainer:
        def __init__(self):
            self.model, self.skipped = nn.Linear(8, 1), 0
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)

        def forward(self):
            self.model(torch.ones(4, 8)).square().mean().backward()

        def step(self):
            try:
                self.forward()
            except:  # MEM011
                # not enough memory
                self.skipped += 1
                self.optimizer.zero_grad()
                return
            self.optimizer.step()
            self.optimizer.zero_grad()

    return Trainer().step


def any_error_halves_the_batch():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def fit(x):
        size = len(x)
        while size > 0:
            try:
                optimizer.zero_grad()
                for part in x.split(size):
                    model(part).square().mean().backward()
                optimizer.step()
                return
            except (ValueError, Exception) as error:  # MEM011
                print("trying with less:", error)
                size = size // 2

    def step():
        fit(torch.ones(4, 8))

    return step


def text_asked_for_and_the_rest_forgotten():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
        except RuntimeError as error:  # MEM011
            if "out of memory" in str(error):
                optimizer.zero_grad()
            return
        optimizer.step()

    return step


def the_same_batch_again_for_ever():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def attempt(x):
        model(x).square().mean().backward()
        return True

    def gradients(x):
        while True:  # MEM011
            optimizer.zero_grad()
            try:
                return attempt(x)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()

    def step():
        gradients(torch.ones(4, 8))
        optimizer.step()

    return step


def any_error_told_by_a_flag_as_memory():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        too_big = False
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
        except RuntimeError as error:  # MEM011
            print(error)
            too_big = True
        if too_big:
            optimizer.zero_grad()
            torch.cuda.empty_cache()

    return step


def any_error_answered_by_the_caller_with_less():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    class Fitter:
        def __init__(self):
            self.micro = 4

        def run(self, x):
            for part in x.split(self.micro):
                model(part).square().mean().backward()
            return True

        def attempt(self, x):
            try:
                return self.run(x)
            except RuntimeError as error:  # MEM011
                print("again in halves", type(error).__name__)
            return None

        def fit(self, x):
            optimizer.zero_grad()
            done = self.attempt(x)
            if done is None and self.micro > 1:
                self.micro //= 2
                optimizer.zero_grad()
                self.run(x)
            optimizer.step()

    fitter = Fitter()

    def step():
        fitter.fit(torch.ones(4, 8))

    return step


def every_error_skips_the_batch_without_a_word():  # a note
    model, skipped = nn.Linear(8, 1), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
        except RuntimeError:  # MEM011
            skipped[0] += 1

    return step


def tries_that_stop_getting_smaller():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    parts = 1

    def attempt(x, number):
        for part in x.chunk(number):
            model(part).square().mean().backward()
        return True

    def gradients(x):
        nonlocal parts
        while True:  # MEM011
            optimizer.zero_grad()
            failed = False
            try:
                return attempt(x, parts)
            except torch.OutOfMemoryError:
                failed = True
            if failed:
                torch.cuda.empty_cache()
                parts = min(2 * parts, 8)

    def step():
        gradients(torch.ones(4, 8))
        optimizer.step()

    return step


def a_smaller_try_by_another_function_inside_the_handler():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

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


def exception_kept_with_its_number():
    model, failures, count = nn.Linear(8, 1), [], [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        count[0] += 1
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
        except torch.OutOfMemoryError as error:
            failures.append((count[0], error))  # MEM011

    return step


def three_attempts_of_one_size():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def gradients(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()

    def safely(x):
        for attempt in range(3):
            try:
                return gradients(x)  # MEM011
            except torch.OutOfMemoryError:
                print("attempt", attempt, "failed")
            torch.cuda.empty_cache()
        raise SystemExit("does not fit")

    def step():
        safely(torch.ones(4, 8))
        optimizer.step()

    return step


def a_part_skipped_and_the_rest_stepped_with():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        for part in torch.ones(16, 8).split(4):
            failed = False
            try:
                (model(part).square().mean() / 4).backward()
            except torch.OutOfMemoryError:  # MEM011
                failed = True
            if failed:
                torch.cuda.empty_cache()
                continue
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def a_part_skipped_inside_the_handler():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        for part in torch.ones(16, 8).split(4):
            try:
                (model(part).square().mean() / 4).backward()
            except torch.OutOfMemoryError:  # MEM011
                torch.cuda.empty_cache()
                continue
        optimizer.step()

    return step
