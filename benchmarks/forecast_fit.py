"""Fits the rates and the interval of ``auditor/extensions/forecast/model.py`` from open
measurements, and prints them with the figures of docs/forecast.md.

    python benchmarks/forecast_fit.py --fetched MIRROR --recordings FOLDER

MIRROR holds git directories ``OWNER+NAME/repo`` of AMD-AGI/TraceLens and
facebookresearch/HolisticTraceAnalysis (MIT: traces), sitar-lab/NeuSight (MIT: single operators) and
ai-dynamo/aiconfigurator (Apache-2.0: bf16 products), as brought by hand; FOLDER
holds further torch.profiler traces. Nothing of them is kept but the numbers. Needs scipy and
pyarrow, which the product does not.
"""

from __future__ import annotations

import argparse
import csv
import io
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from forecast_recordings import (  # noqa: E402
    Recording,
    Row,
    recordings,
    traces_under,
    with_outputs,
)
from scipy.optimize import least_squares  # noqa: E402

from auditor.errors import AuditProblem  # noqa: E402
from auditor.extensions.forecast.counts import (  # noqa: E402
    FP32,
    HALF,
    PRODUCT,
    TF32,
    Call,
    Counts,
    Tensor,
    count,
)
from auditor.extensions.forecast.data_sheets import DataSheet, sheet_of  # noqa: E402
from auditor.extensions.forecast.model import (  # noqa: E402
    NOMINAL,
    RATES,
    Rates,
    call_us,
    least_us,
    rated,
)
from auditor.timeline.precision import arithmetic  # noqa: E402

AICONFIGURATOR, NEUSIGHT, TRACELENS, HTA = (
    "ai-dynamo+aiconfigurator",
    "sitar-lab+NeuSight",
    "AMD-AGI+TraceLens",
    "facebookresearch+HolisticTraceAnalysis",
)
GEMM_FOLDER = "aic-core/src/aiconfigurator_core/systems/data"
GEMM_TABLES = {
    "A100-80GB": "a100_sxm/gemm/vllm/0.14.0",
    "H100": "h100_sxm/gemm/vllm/0.24.0",
    "H200": "h200_sxm/gemm/vllm/0.24.0",
    "L40S": "l40s/gemm/vllm/0.24.0",
    "B200": "b200_sxm/gemm/vllm/0.24.0",
}
TRACES = {
    TRACELENS: tuple(
        f"tests/traces/{room}"
        for room in ("h100", "mi300", "b200", "inference", "perf_model/normalization")
    ),
    HTA: ("tests/data/trace_diff/test",),
}
START, LOW, HIGH = (4.0, 0.4, 0.6), (1.0, 0.02, 0.02), (25.0, 1.0, 1.0)
CALLS = 300
"""Calls of a class that a recording gives at most."""
LEAST_COUNTED = 0.5
"""Share of the time of a recording's kernels that must be counted for it to judge."""
LEAST_GROUPS = 9
"""With fewer the nominal share cannot be reached at all: 1 - 2/(n + 1) is below it."""
LEAST_PART = 0.01
"""Share of a recording's time from which an operator counts as a part."""


def git(mirror: Path, repository: str, *words: str) -> bytes:
    return subprocess.run(
        ["git", "--git-dir", str(mirror / repository / "repo"), *words],
        capture_output=True,
        check=True,
    ).stdout


# --- measurements --------------------------------------------------------------------------------

LAUNCH_FREE_US = 3.0
"""NeuSight's times hold the launch: the shortest is taken to be a kernel of this."""
NEUSIGHT_CALLS = {
    "add": ("aten::add", 2),
    "mul": ("aten::mul", 2),
    "div": ("aten::div", 2),
    "gelu": ("aten::gelu", 1),
    "relu": ("aten::relu", 1),
    "tanh": ("aten::tanh", 1),
    "softmax": ("aten::_softmax", 1),
    "ln": ("aten::native_layer_norm", 1),
}
OPERATORS = "single operators"
"""The group of what is no program: it is fitted and does not judge."""
DRAWN = 60
LEAST_CONV_US, LEAST_IMAGE = 300.0, 14
"""Shorter convolutions of NeuSight are mostly their several launches; in smaller images, which
networks seldom have, tiles are mostly margin.
"""


def neusight_recordings(mirror: Path) -> Iterator[Recording]:
    """NeuSight's operators as recordings of one group, the launch taken off."""
    generator = np.random.default_rng(3)
    rows: dict[str, list[Row]] = defaultdict(list)
    for operator in (*NEUSIGHT_CALLS, "conv"):
        for sheet, table in _neusight_tables(mirror, operator):
            told = [(row, float(row["Latency"] or 0) * 1e3) for row in table if row.get("Latency")]
            if not told:
                continue
            launch = float(np.quantile([us for _, us in told], 0.01)) - LAUNCH_FREE_US
            least = LEAST_CONV_US if operator == "conv" else 3 * LAUNCH_FREE_US
            large = [
                (row, us - launch)
                for row, us in told
                if us - launch > least and int(row.get("Input_Size", LEAST_IMAGE)) >= LEAST_IMAGE
            ]
            number = min(len(large), DRAWN * (4 if operator == "conv" else 1))
            for at in generator.choice(len(large), number, replace=False):
                row, us = large[at]
                call, counts = _neusight(operator, row)
                rows[sheet.key].append(Row(call, counts, call.name, us, 1))
    for key, found in rows.items():
        yield Recording(f"neusight {key}", OPERATORS, sheet_of(key), tuple(found), 0.0, 0.0)


def _neusight_tables(
    mirror: Path, operator: str
) -> Iterator[tuple[DataSheet, list[dict[str, str]]]]:
    """The table of an operator of each GPU that NeuSight measured it on and that is known."""
    folder = "scripts/asplos/data"
    names = git(mirror, NEUSIGHT, "ls-tree", "-r", "--name-only", "HEAD", folder).decode()
    for name in names.splitlines():
        if f"/train/collect/{operator}/" not in name or not name.endswith(".csv"):
            continue
        try:
            sheet = sheet_of(Path(name).stem)
            raw = git(mirror, NEUSIGHT, "show", f"HEAD:{name}").decode()
        except (AuditProblem, subprocess.CalledProcessError):
            continue
        yield sheet, list(csv.DictReader(io.StringIO(raw)))


def _neusight(operator: str, row: Mapping[str, str]) -> tuple[Call, Counts]:
    if operator != "conv":
        name, number = NEUSIGHT_CALLS[operator]
        call = with_outputs(
            Call(name, (Tensor((int(float(row["B"])), int(float(row["H"])))),) * number)
        )
        return call, count(call)
    names = "B Input_Channel Output_Channel Kernel_Szie Input_Size Stride Padding".split()
    batch, channels, made, kernel, size, stride, padding = (int(float(row[each])) for each in names)
    image = Tensor((batch, channels, size, size))
    weight = Tensor((made, channels, kernel, kernel))
    values = (None, None, None, [stride], [padding], [1])
    call = with_outputs(Call("aten::convolution", (image, weight), values))
    computed = {found for name in row["Kernels"].split(";") if (found := arithmetic(name))}
    return call, replace(count(call), arithmetic=TF32 if TF32 in computed else FP32)


def half_products(mirror: Path) -> Iterator[tuple[DataSheet, list[tuple[Counts, float]]]]:
    """bf16 products of aiconfigurator with their times in us."""
    import pyarrow.parquet

    for key, folder in GEMM_TABLES.items():
        path = f"HEAD:{GEMM_FOLDER}/{folder}/gemm_perf.parquet"
        raw = git(mirror, AICONFIGURATOR, "show", path)
        table = pyarrow.parquet.read_table(io.BytesIO(raw)).to_pydict()
        columns = (table[name] for name in ("m", "n", "k", "latency", "gemm_dtype"))
        yield (
            sheet_of(key),
            [
                (
                    Counts(PRODUCT, 2.0 * m * n * k, 2.0 * (m * k + k * n + m * n), 1, HALF),
                    time * 1e3,
                )
                for m, n, k, time, dtype in zip(*columns, strict=True)
                if dtype == "bfloat16" and time > 0
            ],
        )


def products_drawn(
    tables: Iterable[tuple[DataSheet, list[tuple[Counts, float]]]],
) -> Iterator[Recording]:
    """Some of the products of each GPU as a recording."""
    generator = np.random.default_rng(1)
    for sheet, rows in tables:
        chosen = generator.choice(len(rows), CALLS, replace=False)
        found = (Row(None, rows[at][0], "aten::mm", rows[at][1], 1) for at in chosen)
        yield Recording(f"products {sheet.key}", OPERATORS, sheet, tuple(found), 0.0, 0.0)


def fetched_traces(mirror: Path, folder: Path) -> None:
    """Traces of the fetched repositories as files. Those that a snapshot lacks are passed over."""
    for repository, rooms in TRACES.items():
        names = git(mirror, repository, "ls-tree", "-r", "--name-only", "HEAD").decode()
        for name in names.splitlines():
            if not name.startswith(rooms) or not name.endswith(".json.gz") or "capture" in name:
                continue
            try:
                raw = git(mirror, repository, "show", f"HEAD:{name}")
            except subprocess.CalledProcessError:
                continue
            label = repository.partition("+")[2] + "_" + name.removeprefix("tests/")
            target = folder / label.replace("/", "_").removesuffix(".json.gz")
            target.mkdir(parents=True, exist_ok=True)
            (target / Path(name).name).write_bytes(raw)


def once(found: Iterable[Recording]) -> list[Recording]:
    """Each recording once, however often it was brought."""
    seen: dict[tuple[str, str, int, float], Recording] = {}
    for one in found:
        key = (one.group, one.sheet.key, len(one.rows), round(sum(row.us for row in one.rows), 1))
        seen.setdefault(key, one)
    return list(seen.values())


# --- the fit -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Measured:
    """The counted calls of a recording."""

    recording: Recording
    rows: tuple[tuple[Counts, float, str], ...]
    """What each costs, its time in us, and the operator's name."""

    @classmethod
    def of(cls, one: Recording) -> Measured:
        """The rows whose costs are known."""
        return cls(
            one,
            tuple(
                (row.counts, row.us, row.name)
                for row in one.rows
                if row.counts is not None and row.counts.kernels and row.us > 0
            ),
        )

    @property
    def us(self) -> float:
        """Measured busy time."""
        return sum(us for _, us, _ in self.rows)

    @property
    def counted(self) -> float:
        """Share of the time of all kernels but collectives."""
        whole = sum(row.us for row in self.recording.rows) + self.recording.loose_us
        return self.us / max(whole, 1e-9)

    def predicted_us(self, rates: Mapping[str, Rates]) -> float:
        """Busy time by some rates."""
        sheet = self.recording.sheet
        return sum(call_us(counts, sheet, rates) for counts, _, _ in self.rows)

    @property
    def sheet_us(self) -> float:
        """Least busy time by the data sheet."""
        return sum(least_us(counts, self.recording.sheet) for counts, _, _ in self.rows)


@cache
def drawn(one: Measured, kind: str) -> tuple[tuple[float, float, float, float], ...]:
    """Of calls of a class: kernels, FLOPs over the peak and bytes over the bandwidth in us, and the
    time; of some, where there are many.
    """
    sheet = one.recording.sheet
    rows = [(counts, us) for counts, us, _ in one.rows if rated(counts, sheet) == kind]
    chosen = np.random.default_rng(0).choice(len(rows), min(len(rows), CALLS), replace=False)
    return tuple(
        (
            counts.kernels,
            counts.flops / sheet.peak(counts.arithmetic) * 1e6,
            counts.bytes / sheet.bandwidth * 1e6,
            max(us, 0.5),
        )
        for counts, us in (rows[at] for at in chosen)
    )


def fit(measured: Sequence[Measured]) -> dict[str, Rates]:
    """Floor and shares of each class; a long call weighs more than a short one."""
    found = {}
    for kind in RATES:
        rows = np.array([row for one in measured for row in drawn(one, kind)])
        kernels, compute, moved, us = rows.T
        weight = np.sqrt(us)
        weight = np.clip(weight / np.median(weight), 0.3, 6)

        def off(logs: np.ndarray) -> np.ndarray:
            floor, share, width = np.exp(logs)
            told = floor * kernels + np.maximum(compute / share, moved / width)  # noqa: B023
            return weight * np.log(told / us)  # noqa: B023

        bounds = (np.log(LOW), np.log(HIGH))
        best = least_squares(off, np.log(START), bounds=bounds, loss="soft_l1", f_scale=0.3)
        found[kind] = Rates(*(float(f"{each:.3g}") for each in np.exp(best.x)))
    return found


# --- judging -------------------------------------------------------------------------------------


def left_out(
    measured: Sequence[Measured], *, gpu: bool = False
) -> list[tuple[Measured, dict[str, Rates]]]:
    """Each recording with what was fitted without its group, and without its GPU if ``gpu``."""
    fits: dict[tuple[str, str], dict[str, Rates]] = {}
    judged = []
    for one in measured:
        group, model = one.recording.group, one.recording.sheet.key if gpu else ""
        if group == OPERATORS or not one.rows or one.counted < LEAST_COUNTED:
            continue
        if gpu and one.recording.sheet.amd:  # nearly all of AMD's recordings are of one GPU
            continue
        if (group, model) not in fits:
            fits[group, model] = fit(
                [
                    other
                    for other in measured
                    if other.recording.group != group and other.recording.sheet.key != model
                ]
            )
        judged.append((one, fits[group, model]))
    return judged


def by_group(judged: Sequence[tuple[Measured, dict[str, Rates]]]) -> dict[str, list[float]]:
    """Measured over predicted time of each group's recordings."""
    found: dict[str, list[float]] = defaultdict(list)
    for one, rates in judged:
        found[one.recording.group].append(one.us / one.predicted_us(rates))
    return found


def middles(ratios: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """One ratio a group: the median of its recordings' logarithms."""
    return {group: float(np.exp(np.median(np.log(each)))) for group, each in ratios.items()}


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Order statistics that hold one more ratio with the nominal probability; 1 lies in it."""
    ordered = sorted(ratios)
    rank = max(int((1 - NOMINAL) / 2 * (len(ordered) + 1) + 1e-9), 1)
    return min(ordered[rank - 1], 1.0), max(ordered[-rank], 1.0)


def coverage(ratios: Mapping[str, Sequence[float]]) -> float:
    """Share of recordings, each group with the same weight, inside the interval that the other
    groups give.
    """
    middle = middles(ratios)
    shares = []
    for group, found in ratios.items():
        low, high = interval([each for other, each in middle.items() if other != group])
        shares.append(np.mean([low <= each <= high for each in found]))
    return float(np.mean(shares))


def parts_held(
    judged: Sequence[tuple[Measured, dict[str, Rates]]], low: float, high: float
) -> tuple[int, float]:
    """How many operators take a part of a recording, and the share of them, each group with the
    same weight, whose time in all lies between such factors of what is predicted.
    """
    held: dict[str, list[bool]] = defaultdict(list)
    for one, rates in judged:
        sums: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(2))
        for counts, us, name in one.rows:
            told = call_us(counts, one.recording.sheet, rates)
            sums[name] += (us, told)
        held[one.recording.group] += [
            bool(low <= us / told <= high)
            for us, told in sums.values()
            if us >= LEAST_PART * one.us
        ]
    number = sum(map(len, held.values()))
    return number, float(np.mean([np.mean(each) for each in held.values()]))


def say(judged: Sequence[tuple[Measured, dict[str, Rates]]]) -> None:
    print("\n| recording | GPU | busy ms | counted | predicted / measured | sheet / measured |")
    print("|---|---|---|---|---|---|")
    for one, rates in sorted(judged, key=lambda pair: pair[0].recording.name.lower()):
        name = one.recording.name.partition("/")[0].lower().replace("_traces", "")
        print(
            f"| {name[:37]} | {one.recording.sheet.key} | {one.us / 1e3:.1f} | {one.counted:.0%} "
            f"| {one.predicted_us(rates) / one.us:.2f} | {one.sheet_us / one.us:.2f} |"
        )


def say_interval(name: str, judged: Sequence[tuple[Measured, dict[str, Rates]]]) -> None:
    """With too few groups for an interval, the errors alone."""
    ratios = by_group(judged)
    middle = list(middles(ratios).values())
    error = np.abs(1 / np.array(middle) - 1)
    each = np.abs(1 / np.concatenate([np.array(found) for found in ratios.values()]) - 1)
    print(
        f"\n{name}: {len(judged)} recordings, {len(ratios)} groups; median error of recordings "
        f"{np.median(each):.1%}, of groups {np.median(error):.1%}; groups within a factor of two "
        f"{np.mean([0.5 <= each <= 2 for each in middle]):.0%}"
    )
    if len(middle) > LEAST_GROUPS:
        low, high = interval(middle)
        number, held = parts_held(judged, low**2, high**2)
        print(
            f"interval {low:.3f} to {high:.3f} (ratio {high / low:.2f}), holds "
            f"{coverage(ratios):.0%} of groups that are left out; twice as wide it holds "
            f"{held:.0%} of {number} parts"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--fetched", type=Path, required=True)
    parser.add_argument("--recordings", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fetched_traces(options.fetched, Path(folder))
        paths = [*traces_under(options.recordings), *traces_under(Path(folder))]
        found = once(recordings(paths))
    tables = list(half_products(options.fetched))
    single = (*neusight_recordings(options.fetched), *products_drawn(tables))
    measured = [Measured.of(one) for one in (*found, *single)]
    judged = left_out(measured)
    say(judged)
    say_interval("Each group left out", judged)
    whole = [each for each in judged if each[0].counted >= 0.9 and each[0].us >= 1000]
    say_interval("Of these at least 90% counted and 1 ms", whole)
    say_interval("NVIDIA's, the GPU left out as well", left_out(measured, gpu=True))
    rates = fit(measured)
    print("\nRATES:")
    for kind, each in rates.items():
        print(f"    {kind}: {each.floor_us}, {each.compute}, {each.memory}")
    print(
        "\n| bf16 products of | shapes | data sheet | this model (p80) | measured / predicted in all |"
        "\n|---|---|---|---|---|"
    )
    for sheet, rows in tables:
        us = np.array([time for _, time in rows])
        least = np.array([least_us(counts, sheet) for counts, _ in rows])
        told = np.array([call_us(counts, sheet, rates) for counts, _ in rows])
        bare, error = np.abs(least / us - 1), np.abs(told / us - 1)
        print(
            f"| {sheet.key} | {len(rows):,} | {np.median(bare):.1%} "
            f"| {np.median(error):.1%} ({np.quantile(error, 0.8):.0%}) | {us.sum() / told.sum():.2f} |"
        )


if __name__ == "__main__":
    main()
