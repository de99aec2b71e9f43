"""What watching costs: quiet, trace and loud pass against the bare loop and a plain torch.profiler,
in turn, in one run.

    OMP_NUM_THREADS=1 python benchmarks/overhead.py [rounds]

CPU time of this thread per step; each block of an instrumented kind stands between two bare blocks
and is divided by their mean; the median over the rounds is printed. Goals: quiet <= 1.05, trace and
loud <= plain profiler with the same flags + 0.1.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from auditor.capture.instruments.user_frames import Frames  # noqa: E402
from auditor.capture.probes.base import Context  # noqa: E402
from auditor.capture.probes.registry import select  # noqa: E402
from auditor.capture.session import Pass, Session  # noqa: E402
from auditor.judging import catalogue, engine  # noqa: E402
from auditor.model.devices import CPU  # noqa: E402
from auditor.recordings.folder import RecordingWriter  # noqa: E402
from auditor.runs.plan import Plan  # noqa: E402

BLOCK = 10
PARTS = engine.parts_of(catalogue.rules())


def transformer(width: int = 32, layers: int = 4) -> Callable[[], float]:
    """A launch-bound step: about 800 operators, 4 ms on a slow core."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(256, width),
        nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
        nn.Linear(width, 256),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens, labels = torch.randint(0, 256, (2, 16)), torch.randint(0, 256, (2, 16))

    def step() -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def block(
    step: Callable[[], object],
    before: Callable[[], None] = lambda: None,
    after: Callable[[], None] = lambda: None,
) -> float:
    """CPU seconds per step of this thread, instruments' own work around each step included."""
    begin = time.thread_time()
    for _ in range(BLOCK):
        before()
        step()
        after()
    return (time.thread_time() - begin) / BLOCK


@contextmanager
def one_pass(
    name: str, step: Callable[[], object]
) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """A session that is in the middle of one pass: what to call before and after each step."""
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordingWriter(Path(folder))
        plan = Plan("bench:step", (), BLOCK + 1, 0, "cpu", folder, PARTS)
        frames = Frames(writer, (str(Path(__file__)),))
        context = Context(writer, frames, device=CPU, plan=plan, target=step)
        session = Session(context, select(PARTS, context), lambda *_: None)
        session.schedule.queue = [Pass(name, BLOCK + 2)]
        session.install()
        session.begin()
        step()
        session.end()
        try:
            yield session.begin, session.end
        finally:
            session.uninstall()
            writer.close()


@contextmanager
def plain_profiler() -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """torch.profiler with the flags that the trace pass uses."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True):
        yield (lambda: None), (lambda: None)


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    step = transformer()
    for _ in range(20):
        step()
    kinds: dict[str, Callable[[], object]] = {
        "bare again": _null,
        "quiet pass": lambda: one_pass("quiet", step),
        "loud pass": lambda: one_pass("loud", step),
        "plain torch.profiler": plain_profiler,
        "trace pass": lambda: one_pass("trace", step),
    }
    ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
    bares = []
    for round_ in range(rounds):
        for kind in list(kinds) if round_ % 2 else list(kinds)[::-1]:
            gc.collect()
            first = block(step)
            with kinds[kind]() as (before, after):  # type: ignore[attr-defined]
                step()
                cost = block(step, before, after)
            bare = (first + block(step)) / 2
            bares.append(bare)
            ratios[kind].append(cost / bare)
    print(
        f"bare step: {1e3 * statistics.median(bares):.2f} ms of CPU; {rounds} rounds of {BLOCK} "
        "steps"
    )
    for kind, values in ratios.items():
        ordered = sorted(values)
        print(
            f"{kind:26} x{statistics.median(ordered):.2f}  [{ordered[len(ordered) // 4]:.2f} - "
            f"{ordered[3 * len(ordered) // 4]:.2f}]"
        )


@contextmanager
def _null() -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    yield (lambda: None), (lambda: None)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 9)
