import torch
from torch import nn

from tests.rules.traces import copying
from tests.timeline.kineto import loop, product, text


def already_on_the_device__rehearsal():
    model, x = nn.Linear(8, 1, device="cuda"), torch.ones(4, 8, device="cuda")
    return lambda: model(x.to("cuda")).mean().backward()


def only_the_dtype_changes__rehearsal():
    model, x = nn.Linear(8, 1, device="cuda"), torch.ones(4, 8, device="cuda", dtype=torch.float64)
    return lambda: model(x.to(torch.float32)).mean().backward()


def before_the_loop__rehearsal():
    model, rows = nn.Linear(8, 1, device="cuda"), torch.randn(64, 8).to("cuda")
    return lambda: model(rows).mean().backward()


def once_in_five_steps__rehearsal():
    model, rows, count = nn.Linear(8, 1, device="cuda"), [torch.randn(64, 8)], [0]

    def step():
        if count[0] % 5 == 0:
            rows.append(rows[0].to("cuda"))
        count[0] += 1
        model(rows[-1]).mean().backward()

    return step


def host_arithmetic_stays_on_the_host__rehearsal():
    model, x, scale = nn.Linear(8, 1, device="cuda"), torch.ones(4, 8, device="cuda"), torch.tensor(2.0)

    def step():
        factor = scale.mul(0.5).to("cpu").to(torch.float64)
        (model(x).mean() * factor).backward()

    return step


def a_training_run_on_the_cpu():
    model, rows = nn.Linear(8, 1), torch.randn(64, 8)
    return lambda: model(rows.to("cpu")).mean().backward()


def asynchronous_from_pinned_memory__trace():
    return text(loop(4, 1000.0, lambda number, start: copying(start, number, "HtoD (Pinned -> Device)", waits=False)))


def copy_to_the_host_is_another_rules__trace():
    return text(loop(4, 1000.0, lambda number, start: copying(start, number, "DtoH (Device -> Pageable)")))


def copied_once_in_ten_steps__trace():
    return text(loop(10, 1000.0, lambda number, start: copying(start, number) if number == 3 else product(start, number)))


def copied_before_the_first_step__trace():
    return text([*copying(100.0, 90), *loop(4, 1000.0, lambda number, start: product(start, number))])


def trace_that_marks_no_steps__trace():
    return text([event for number in range(4) for event in copying(1000.0 * number, number)])
