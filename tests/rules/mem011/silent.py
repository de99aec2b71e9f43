"""Near misses: MEM011 must stay silent on all of these."""

import torch
from torch import nn


def flag_then_fresh_forward_with_smaller_parts():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

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
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

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


def batch_skipped_and_gradients_cleared():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            print("skipped a batch:", error)
            optimizer.zero_grad(set_to_none=True)

    return step


def batch_skipped_before_gradients_are_cleared_anyway():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        for _ in range(2):
            optimizer.zero_grad()
            try:
                loss = model(torch.ones(4, 8)).square().mean()
                loss.backward()
            except torch.OutOfMemoryError:
                continue
            optimizer.step()

    return step


def checkpoint_and_stop():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
        except torch.OutOfMemoryError as error:
            torch.save(model.state_dict(), "last.pt")
            raise RuntimeError("no memory for this batch") from error
        optimizer.step()

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


def step_skipped_by_a_flag():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        fits = True
        try:
            model(torch.ones(4, 8)).square().mean().backward()
        except torch.OutOfMemoryError:
            fits = False
        if fits:
            optimizer.step()

    return step


def second_backward_of_another_error():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

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
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def another(loss):
        try:
            loss.backward()
        except torch.OutOfMemoryError:
            loss.backward()

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
        return another

    return step


def cache_emptied_on_every_step_which_is_sync009__cuda():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        model(torch.ones(4, 8, device="cuda")).mean().backward()
        torch.cuda.empty_cache()

    return step


def cache_emptied_once__cuda():
    model, count = nn.Linear(8, 1, device="cuda"), [0]

    def step():
        count[0] += 1
        model(torch.ones(4, 8, device="cuda")).mean().backward()
        if count[0] == 5:
            torch.cuda.empty_cache()

    return step


def other_errors_raised_from_the_same_handler():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

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


def other_errors_raised_first():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            print("skipped a batch")
            optimizer.zero_grad()

    return step


def gradients_deleted_one_by_one():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        except torch.OutOfMemoryError:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    del parameter.grad

    return step


def gradients_cleared_by_a_function_of_the_program():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def forget_this_batch():
        for parameter in model.parameters():
            parameter.grad = None
        torch.cuda.empty_cache()

    def step():
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        except torch.OutOfMemoryError:
            forget_this_batch()

    return step


def step_skipped_by_a_flag_of_the_trainer():
    class Trainer:
        def __init__(self):
            self.model = nn.Linear(8, 1)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
            self.failed = False

        def step(self):
            self.failed = False
            self.optimizer.zero_grad()
            try:
                self.model(torch.ones(4, 8)).square().mean().backward()
            except torch.OutOfMemoryError:
                self.failed = True
            if not self.failed:
                self.optimizer.step()

    return Trainer().step


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


def cleared_behind_the_handler_in_the_loop():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        parts = 1
        optimizer.zero_grad()
        while True:
            try:
                for part in torch.ones(4, 8).chunk(parts):
                    (model(part).square().mean() / parts).backward()
                break
            except torch.OutOfMemoryError:
                parts *= 2
                if parts > 4:
                    raise
            optimizer.zero_grad()
        optimizer.step()

    return step


def loop_over_batches_that_skips_one():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        seen = 0
        while seen < 2:
            try:
                model(torch.ones(4, 8)).square().mean().backward()
                seen += 1
            except torch.OutOfMemoryError:
                model.zero_grad()
                seen += 1
        optimizer.step()
        optimizer.zero_grad()

    return step


def attempt_that_clears_by_itself():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def attempt(parts):
        optimizer.zero_grad()
        for part in torch.ones(4, 8).chunk(parts):
            (model(part).square().mean() / parts).backward()

    def step():
        for parts in (1, 2, 4):
            try:
                attempt(parts)
            except torch.OutOfMemoryError:
                continue
            else:
                break
        optimizer.step()

    return step


def loop_that_stops_at_the_error():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        while True:
            try:
                model(torch.ones(4, 8)).square().mean().backward()
                break
            except torch.OutOfMemoryError:
                torch.save(model.state_dict(), "last.pt")
                raise
        optimizer.step()
        optimizer.zero_grad()

    return step


def broad_handler_of_an_interrupted_run():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
        except Exception:
            torch.cuda.empty_cache()
            raise
        optimizer.step()

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


def error_handed_to_what_may_raise_it():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def only_memory(error):
        if "out of memory" not in str(error):
            raise error

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
        except RuntimeError as error:
            only_memory(error)
            optimizer.zero_grad()
            torch.cuda.empty_cache()
            return
        optimizer.step()

    return step


def memory_caught_first_and_the_rest_told():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
        except torch.OutOfMemoryError:
            optimizer.zero_grad()
            torch.cuda.empty_cache()
            return
        except RuntimeError as error:
            print("a sample that cannot be used", error)
            optimizer.zero_grad()
            return
        optimizer.step()

    return step


def anything_ends_the_training():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        for _ in range(2):
            optimizer.zero_grad()
            try:
                model(torch.ones(4, 8)).square().mean().backward()
            except Exception as error:
                print("maybe out of memory", error)
                break
            optimizer.step()

    return step


def other_errors_raised_behind_the_block():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        failure = None
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
        except RuntimeError as error:
            failure = str(error)
        if failure is not None:
            if "out of memory" not in failure:
                raise RuntimeError(failure)
            optimizer.zero_grad()
            torch.cuda.empty_cache()
        else:
            optimizer.step()

    return step


def other_errors_raised_by_the_caller():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def attempt(x):
        try:
            model(x).square().mean().backward()
        except Exception as error:
            print("maybe out of memory", error)
            return False
        return True

    def step():
        optimizer.zero_grad()
        if not attempt(torch.ones(4, 8)):
            raise SystemExit("the batch could not be trained on")
        optimizer.step()

    return step


def a_cache_emptied_for_another_reason():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    counts = {"bad": 0, "steps": 0}

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
        except RuntimeError:
            counts["bad"] += 1
            optimizer.zero_grad()
            return
        optimizer.step()
        counts["steps"] += 1
        if counts["steps"] % 100 == 0:
            torch.cuda.empty_cache()

    return step


def every_try_takes_less():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
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


def tries_that_end():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def attempt(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        return True

    def gradients(x):
        tries = 0
        while True:
            try:
                return attempt(x)
            except torch.OutOfMemoryError:
                tries += 1
                torch.cuda.empty_cache()
            if tries > 2:
                raise SystemExit("does not fit")

    def step():
        gradients(torch.ones(4, 8))
        optimizer.step()

    return step


def another_batch_for_the_next_try():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(lambda: torch.ones(4, 8), None)

    def one():
        while True:
            optimizer.zero_grad()
            try:
                model(next(batches)).square().mean().backward()
                return
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()

    def step():
        one()
        optimizer.step()

    return step


def expected_errors_of_another_kind():
    model, skipped = nn.Linear(8, 1), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
        except FloatingPointError:
            skipped[0] += 1

    return step


def tries_that_get_smaller_and_give_up():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    parts = 1

    def attempt(x, number):
        for part in x.chunk(number):
            model(part).square().mean().backward()
        return True

    def gradients(x):
        nonlocal parts
        while True:
            optimizer.zero_grad()
            failed = False
            try:
                return attempt(x, parts)
            except torch.OutOfMemoryError:
                failed = True
            if failed:
                if parts == 8:
                    raise SystemExit("does not fit")
                parts = min(2 * parts, 8)

    def step():
        gradients(torch.ones(4, 8))
        optimizer.step()

    return step


def text_kept_with_its_number():
    model, failures, count = nn.Linear(8, 1), [], [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        count[0] += 1
        optimizer.zero_grad()
        try:
            model(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
        except torch.OutOfMemoryError as error:
            failures.append((count[0], str(error), type(error)))

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


def attempts_in_more_parts_each_time():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def gradients(x, parts):
        optimizer.zero_grad()
        for part in x.chunk(parts):
            (model(part).square().mean() / parts).backward()

    def safely(x):
        for attempt in range(3):
            try:
                return gradients(x, 2**attempt)
            except torch.OutOfMemoryError:
                if attempt == 2:
                    raise
            torch.cuda.empty_cache()

    def step():
        safely(torch.ones(4, 8))
        optimizer.step()

    return step


def attempts_that_wait_for_another_program():
    import time

    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def gradients(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()

    def safely(x):
        for attempt in range(3):
            try:
                return gradients(x)
            except torch.OutOfMemoryError:
                if attempt == 2:
                    raise
            time.sleep(60)

    def step():
        safely(torch.ones(4, 8))
        optimizer.step()

    return step


def attempts_and_then_in_two_parts():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def gradients(x):
        model(x).square().mean().backward()

    def safely(x):
        for _ in range(2):
            optimizer.zero_grad()
            try:
                return gradients(x)
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
        optimizer.zero_grad()
        gradients(x[:2])
        gradients(x[2:])

    def step():
        safely(torch.ones(4, 8))
        optimizer.step()

    return step


def a_part_skipped_and_the_step_with_it():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        failed = False
        for part in torch.ones(16, 8).split(4):
            try:
                (model(part).square().mean() / 4).backward()
            except torch.OutOfMemoryError:
                failed = True
        if not failed:
            optimizer.step()

    return step


def parts_that_end_at_the_error():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        for part in torch.ones(16, 8).split(4):
            failed = False
            try:
                (model(part).square().mean() / 4).backward()
            except torch.OutOfMemoryError:
                failed = True
            if failed:
                torch.cuda.empty_cache()
                return
        optimizer.step()

    return step


def cleared_where_a_part_failed():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        for part in torch.ones(16, 8).split(4):
            failed = False
            try:
                (model(part).square().mean() / 4).backward()
            except torch.OutOfMemoryError:
                failed = True
            if failed:
                optimizer.zero_grad()
        optimizer.step()

    return step


def cleared_behind_the_parts():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        for part in torch.ones(16, 8).split(4):
            try:
                (model(part).square().mean() / 4).backward()
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()

    return step


def each_part_has_its_step():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        for part in torch.ones(16, 8).split(4):
            optimizer.zero_grad()
            try:
                (model(part).square().mean() / 4).backward()
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                continue
            optimizer.step()

    return step
