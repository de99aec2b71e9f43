"""Whether the operators that a rehearsal writes down are those that a GPU's trace shows: programs
with an open recording, rehearsed on the shadow device, against that recording.

    OMP_NUM_THREADS=1 python benchmarks/rehearsed_operators.py FOLDER [NAME ...]

FOLDER holds the recordings, a folder each. The programs are written after what the recordings show
(layers, batch, loss, optimizer). Of each class of operators the calls, FLOPs and bytes of a step
are compared; a call *agrees* where the other side has one of the same class, FLOPs and bytes. The
last column is what the forecast makes of the calls, the rehearsal's over the recording's.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from forecast_recordings import Recording, recordings, traces_under  # noqa: E402

from auditor.capture.instruments.user_frames import Frames  # noqa: E402
from auditor.capture.probes.base import Context  # noqa: E402
from auditor.capture.probes.rehearsal import RehearsalProbe  # noqa: E402
from auditor.evidence.recorded.operators import RanOperators  # noqa: E402
from auditor.evidence.table import Evidence  # noqa: E402
from auditor.extensions.forecast.counts import NOTHING, UNKNOWN, Call, Counts, count  # noqa: E402
from auditor.extensions.forecast.data_sheets import DataSheet  # noqa: E402
from auditor.extensions.forecast.model import call_us  # noqa: E402
from auditor.extensions.forecast.step import call_of  # noqa: E402
from auditor.model.devices import SHADOW  # noqa: E402
from auditor.recordings import folder as folders  # noqa: E402

Step = Callable[[], None]


def digits() -> Step:
    """t4_fp32: three linear layers, cross entropy, Adam."""
    model = nn.Sequential(
        nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 10)
    ).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    images, labels = torch.randn(512, 784), torch.randint(0, 10, (512,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images.cuda()), labels.cuda()).backward()
        optimizer.step()

    return step


def two_classes() -> Step:
    """hourany_nw8_bs2056: three linear layers, one logit, Adam."""
    model = nn.Sequential(
        nn.Linear(2056, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1)
    ).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    rows, labels = torch.randn(2056, 2056), torch.randint(0, 2, (2056,)).float()

    def step() -> None:
        optimizer.zero_grad()
        logits = model(rows.cuda()).squeeze(1)
        nn.functional.binary_cross_entropy_with_logits(logits, labels.cuda()).backward()
        optimizer.step()

    return step


class Bottleneck(nn.Module):
    """Of a residual network (He et al., 2016), with the stride on the 3x3 convolution."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False),
            nn.BatchNorm2d(4 * width),
        )
        self.short = (
            nn.Identity()
            if stride == 1 and channels == 4 * width
            else nn.Sequential(
                nn.Conv2d(channels, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )
        )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The block's output."""
        out = self.body(x)
        out += self.short(x)
        return self.relu(out)


def residual() -> Step:
    """kineto_resnet50: ResNet-50 on images of 224 by 224, 32 at a time, SGD with momentum, one
    kernel for each parameter as torch 1.9 had it.
    """
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for number in range(blocks):
            stride = 2 if width > 64 and not number else 1
            layers.append(Bottleneck(channels, width, stride))
            channels = 4 * width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(2048, 1000)]
    model = nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, foreach=False)
    images, labels = torch.randn(32, 3, 224, 224), torch.randint(0, 10, (32,))

    def step() -> None:
        loss = nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()

    return step


PROGRAMS: dict[str, tuple[Callable[[], Step], int]] = {
    "t4_fp32": (digits, 3),
    "hourany_nw8_bs2056": (two_classes, 3),
    "kineto_resnet50_nw4_2021-06": (residual, 6),
}
"""Recording -> the program, and the steps that were recorded."""


@dataclass(frozen=True)
class Side:
    """Calls of a step by what was counted of them, and how often each."""

    counts: Counter[Counts]
    uncounted: int

    def of(self, kind: str) -> Counter[Counts]:
        """Those of a class."""
        return Counter({each: n for each, n in self.counts.items() if each.kind == kind})


def side(calls: Iterable[tuple[Call | None, float]]) -> Side:
    """Of calls, and how often each runs in a step."""
    counts: Counter[Counts] = Counter()
    uncounted = 0
    for call, times in calls:
        counted = count(call) if call is not None else None
        if counted is None or counted.kind == UNKNOWN:
            uncounted += 1
        elif counted.kind != NOTHING:
            counts[counted] += times  # type: ignore[assignment]
    return Side(counts, uncounted)


def rehearsed(make: Callable[[], Step]) -> Side:
    """The second step on the shadow device."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        writer = folders.RecordingWriter(folder)
        frames = Frames(writer, (str(ROOT / "nobody.py"),))
        context = Context(writer, frames, device=SHADOW, pass_name="loud")
        probe = RehearsalProbe(context)
        probe.install()
        try:
            step = make()
            step()
            probe.start()
            context.in_step = True
            step()
            context.in_step = False
        finally:
            probe.stop()
            probe.uninstall()
            writer.close()
        manifest = {"schema": folders.SCHEMA, "device": "rehearse", "outcome": "completed"}
        folders.write_manifest(folder, manifest)
        ran = Evidence(folders.Recording(folder)).get(RanOperators)
        return side((call_of(row, 1), float(n)) for row, n in ran.calls)


def recorded(found: Recording, steps: int) -> Side:
    """A step of the recording, on average."""
    return side((row.call, 1 / steps) for row in found.rows)


def coarse(counts: Counter[Counts]) -> dict[tuple[float, float], float]:
    """By FLOPs and bytes: three digits, which leave out a bias read twice and the like."""
    told: dict[tuple[float, float], float] = defaultdict(float)
    for each, n in counts.items():
        told[float(f"{each.flops:.2e}"), float(f"{each.bytes:.2e}")] += n
    return told


def agreeing(one: Counter[Counts], other: Counter[Counts]) -> float:
    """Calls of ``one`` that ``other`` has as well."""
    theirs = coarse(other)
    return sum(min(n, theirs.get(key, 0.0)) for key, n in coarse(one).items())


def total(counts: Counter[Counts], sheet: DataSheet) -> tuple[float, float, float]:
    """FLOPs, bytes and predicted us of a step."""
    return (
        sum(each.flops * n for each, n in counts.items()),
        sum(each.bytes * n for each, n in counts.items()),
        sum(call_us(each, sheet) * n for each, n in counts.items()),
    )


def ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if theirs else ("-" if not ours else "more")


def compare(name: str, found: Recording, shadow: Side, trace: Side) -> None:
    print(f"\n{name} ({found.sheet.key}); calls a step; uncounted: {trace.uncounted} in the trace")
    print("| class | trace | shadow | agree | FLOPs | bytes | forecast |")
    print("|---|---|---|---|---|---|---|")
    for kind in sorted({each.kind for each in (*shadow.counts, *trace.counts)}):
        say(kind, shadow.of(kind), trace.of(kind), found.sheet)
    say("all", shadow.counts, trace.counts, found.sheet)


def say(kind: str, ours: Counter[Counts], theirs: Counter[Counts], sheet: DataSheet) -> None:
    here, there = total(ours, sheet), total(theirs, sheet)
    calls = f"{sum(theirs.values()):.0f} | {sum(ours.values()):.0f} | {agreeing(theirs, ours):.0f}"
    print(f"| {kind} | {calls} | {' | '.join(map(ratio, here, there))} |", flush=True)


def main(folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    for name in names or PROGRAMS:
        make, steps = PROGRAMS[name]
        for found in recordings(traces_under(folder / name)):
            compare(name, found, rehearsed(make), recorded(found, steps))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
