import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.traces import copying
from tests.timeline.kineto import loop, op, product, span, text


def rows_of_an_array__rehearsal():
    model, rows = nn.Linear(8, 1, device="cuda"), numpy.random.default_rng(0).normal(size=(64, 8))

    def step():
        x = torch.as_tensor(rows[:16], dtype=torch.float32).to("cuda")  # SYNC006
        model(x).mean().backward()

    return step


def pinned_but_without_non_blocking__rehearsal():
    model, rows = nn.Linear(8, 1, device="cuda"), torch.randn(64, 8).pin_memory()
    return lambda: model(rows.cuda()).mean().backward()  # SYNC006


def copied_into_a_buffer__rehearsal():
    model, buffer = nn.Linear(8, 1, device="cuda"), torch.empty(64, 8, device="cuda")
    host = torch.randn(64, 8)

    def step():
        host.add_(0.01)
        buffer.copy_(host)  # SYNC006
        model(buffer).mean().backward()

    return step


def a_transformed_batch_is_no_longer_the_loaders__rehearsal():
    model = nn.Linear(8, 1, device="cuda")
    batches = iter(DataLoader(TensorDataset(torch.ones(4000, 8)), batch_size=4, pin_memory=True))

    def step():
        (x,) = next(batches)
        x = x / 255
        x = x.to("cuda", non_blocking=False)  # SYNC006
        model(x).mean().backward()

    return step


def noise_drawn_some_lines_above__rehearsal():
    model = nn.Linear(8, 1, device="cuda")

    def step():
        noise = torch.randn(64, 8)
        scale = 2
        noise = noise.to("cuda")  # SYNC006
        model(noise * scale).mean().backward()

    return step


def batch_moved_on_each_step__trace():
    return text(loop(4, 1000.0, lambda number, start: copying(start, number)))


def pinned_but_blocking__trace():
    return text(loop(4, 1000.0, lambda number, start: copying(start, number, "HtoD (Pinned -> Device)")))


def synchronous_copy_of_amd__trace():
    def body(number, start):
        where = {"correlation": number, "device": 0, "stream": 7}
        return [
            *product(start + 10, 100 + number),
            op("aten::copy_", start + 400, 200),
            span("cuda_runtime", "hipMemcpyWithStream", start + 410, 100, tid=100, correlation=number),
            span("gpu_memcpy", "Memcpy HtoD (Host -> Device)", start + 420, 80, pid=0, tid=7, **where),
        ]

    return text(loop(4, 1000.0, body))
