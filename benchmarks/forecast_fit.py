"""Fits the numbers of ``auditor/extensions/forecast/coefficients.json`` from open measurements, and prints the
figures of docs/forecast.md.

    python benchmarks/forecast_fit.py --fetched MIRROR --recordings FOLDER [--write]

MIRROR holds git directories ``OWNER+NAME/repo`` of ai-dynamo/aiconfigurator (Apache-2.0: bf16
products), sitar-lab/NeuSight (MIT: fp32 products, operators), AMD-AGI/TraceLens and
facebookresearch/HolisticTraceAnalysis (MIT: traces), as brought by hand; FOLDER holds further torch.profiler traces. Nothing of them is kept but the numbers. Needs
scipy and pyarrow, which the product does not.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from forecast_recordings import Recording, Row, recordings, traces_under  # noqa: E402
from scipy.optimize import least_squares  # noqa: E402

from auditor.extensions.forecast import kinds  # noqa: E402
from auditor.extensions.forecast.calls import Call, Tensor  # noqa: E402
from auditor.extensions.forecast.classes import ClassNumbers, Work, class_us  # noqa: E402
from auditor.extensions.forecast.coefficients import (  # noqa: E402
    ANY,
    PATH,
    SCHEMA,
    ClassFit,
    Coefficients,
    MatmulFit,
    Source,
    read,
)
from auditor.extensions.forecast.counted import FP32, HALF, TF32  # noqa: E402
from auditor.extensions.forecast.counts import count  # noqa: E402
from auditor.extensions.forecast.data_sheets import GENERATIONS, DataSheet, sheet_of  # noqa: E402
from auditor.extensions.forecast.forecasting import LEAST_US, MOST_UNFITTED, forecast  # noqa: E402
from auditor.extensions.forecast.intervals import (  # noqa: E402
    coverage,
    ratio_of_groups,
    spread_of,
)
from auditor.extensions.forecast.matmul import MatmulNumbers, Products, aligned, matmul_us  # noqa: E402
from auditor.extensions.forecast.predicting import (  # noqa: E402
    kind_fitted,
    predicted_us,
    products_of,
    roofline_us,
    work_of,
)
from auditor.timeline.precision import arithmetic  # noqa: E402

AICONFIGURATOR, NEUSIGHT, TRACELENS, HTA = (
    "ai-dynamo+aiconfigurator",
    "sitar-lab+NeuSight",
    "AMD-AGI+TraceLens",
    "facebookresearch+HolisticTraceAnalysis",
)
GEMM_TABLES = {
    "A100-80GB": ("a100_sxm/gemm/sglang/0.5.10", "a100_sxm/gemm/vllm/0.14.0"),
    "H100": ("h100_sxm/gemm/vllm/0.24.0",),
    "H200": ("h200_sxm/gemm/vllm/0.24.0",),
    "L40S": ("l40s/gemm/vllm/0.24.0",),
    "B200": ("b200_sxm/gemm/vllm/0.24.0",),
}
GEMM_FOLDER = "aic-core/src/aiconfigurator_core/systems/data"
FP32_TABLES = {
    "A100-40GB": "dataset/{}/collect/{}/p2.1.0/NVIDIA A100-PCIE-40GB.csv",
    "V100": "dataset/{}/collect/{}/p2.1.0/Tesla V100-PCIE-32GB.csv",
    "T4": "dataset/{}/collect/{}/p2.1.0/Tesla T4.csv",
    "P100": "dataset/{}/collect/{}/p2.1.0/Tesla P100-PCIE-16GB.csv",
    "P4": "dataset/{}/collect/{}/p2.1.0/Tesla P4.csv",
    "MI100": "dataset_amd/{}/collect/{}/p2.4.1/AMD Instinct MI100.csv",
    "MI210": "dataset_amd/{}/collect/{}/p2.4.1/AMD Instinct MI210.csv",
}
TRACES = {
    TRACELENS: tuple(
        f"tests/traces/{room}"
        for room in ("h100", "mi300", "b200", "inference", "perf_model/normalization")
    ),
    HTA: ("tests/data/trace_diff/test",),
}
LAUNCH_FREE_US = 3.0
"""NeuSight's times of products hold the launch: the shortest is taken to be a kernel of this."""

MATMUL_START = (2.5, 0.75, 0.8, 64.0, 1.5, 0.25)
MATMUL_LOW = (0.5, 0.2, 0.2, 1.0, 1.0, 1e-4)
MATMUL_HIGH = (12.0, 1.0, 1.0, 2000.0, 4.0, 4.0)
CLASS_START = {
    kinds.CONV: (5.0, 0.45, 0.6, 1.0, 1.0),
    kinds.CONV_BACKWARD: (8.0, 0.4, 0.6, 1.0, 1.0),
    kinds.ATTENTION: (5.0, 0.45, 0.7, 1.0, 1.0),
    kinds.ATTENTION_BACKWARD: (8.0, 0.4, 0.7, 1.0, 1.0),
}
CLASS_LOW = (1.0, 0.03, 0.03, 1e-3, 0.99)
CLASS_HIGH = (25.0, 1.0, 1.0, 30.0, 4.0)
BORROWED = {kinds.CONV_BACKWARD: kinds.CONV, kinds.ATTENTION_BACKWARD: kinds.ATTENTION}
LEAST_CALLS, LEAST_GROUPS = 15, 3
CALLS_PER_RECORDING = 60


def git(mirror: Path, repository: str, *words: str) -> bytes:
    return subprocess.run(
        ["git", "--git-dir", str(mirror / repository / "repo"), *words],
        capture_output=True,
        check=True,
    ).stdout


# --- matrix products -----------------------------------------------------------------------------


@dataclass
class Measured:
    """Products with their times in us."""

    products: Products
    us: np.ndarray

    def some(self, rows: np.ndarray) -> Measured:
        """A part of the rows."""
        kept = {
            each.name: getattr(self.products, each.name)[rows] for each in fields(self.products)
        }
        return Measured(Products(**kept), self.us[rows])


def joined(parts: Sequence[Measured]) -> Measured:
    names = [each.name for each in fields(Products)]
    columns = {
        name: np.concatenate([getattr(part.products, name) for part in parts]) for name in names
    }
    return Measured(Products(**columns), np.concatenate([part.us for part in parts]))


def _neusight_tables(
    mirror: Path, operator: str
) -> Iterator[tuple[DataSheet, list[dict[str, str]]]]:
    """The table of an operator of each GPU that NeuSight measured it on."""
    folder = "scripts/asplos/data"
    names = git(mirror, NEUSIGHT, "ls-tree", "-r", "--name-only", "HEAD", folder).decode()
    for name in names.splitlines():
        if f"/train/collect/{operator}/" not in name or not name.endswith(".csv"):
            continue
        try:
            raw = git(mirror, NEUSIGHT, "show", f"HEAD:{name}").decode()
        except subprocess.CalledProcessError:
            continue
        yield sheet_of(Path(name).stem), list(csv.DictReader(io.StringIO(raw)))


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
NEUSIGHT_DRAWN = 60
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
            number = min(len(large), NEUSIGHT_DRAWN * (4 if operator == "conv" else 1))
            for at in generator.choice(len(large), number, replace=False):
                row, us = large[at]
                call = _neusight_conv(row) if operator == "conv" else _neusight_call(operator, row)
                rows[sheet.key].append(Row(call, count(call), call.name, us, 1))
    for key, found in rows.items():
        yield Recording(f"neusight {key}", NEUSIGHT_GROUP, sheet_of(key), tuple(found), 0.0, 0.0)


NEUSIGHT_GROUP = "neusight"


def _neusight_call(operator: str, row: Mapping[str, str]) -> Call:
    name, number = NEUSIGHT_CALLS[operator]
    tensor = Tensor((int(float(row["B"])), int(float(row["H"]))))
    return Call(name, (tensor,) * number)


def _neusight_conv(row: Mapping[str, str]) -> Call:
    batch, channels, made, kernel, size, stride, padding = (
        int(float(row[name]))
        for name in (
            "B",
            "Input_Channel",
            "Output_Channel",
            "Kernel_Szie",
            "Input_Size",
            "Stride",
            "Padding",
        )
    )
    image = Tensor((batch, channels, size, size))
    weight = Tensor((made, channels, kernel, kernel))
    values = (None, None, None, [stride], [padding], [1])
    computed = {found for name in row["Kernels"].split(";") if (found := arithmetic(name))}
    return Call(
        "aten::convolution",
        (image, weight),
        values,
        arithmetic=TF32 if TF32 in computed else FP32,
    )


def measured(sheet: DataSheet, kind: str, sizes: np.ndarray, us: np.ndarray, item: int) -> Measured:
    batch, rows, columns, depth = sizes.T.astype(float)
    moved = item * batch * (rows * depth + depth * columns + rows * columns)
    number = np.ones(len(us))
    return Measured(
        Products(
            batch=batch,
            rows=rows,
            columns=columns,
            depth=depth,
            bytes=moved,
            peak=number * sheet.peak(kind) / 1e6,
            bandwidth=number * sheet.bandwidth / 1e6,
            l2_bytes=number * sheet.l2_bytes,
            processors=number * sheet.processors,
            item_bytes=number * item,
        ),
        us,
    )


def half_products(mirror: Path) -> dict[str, Measured]:
    import pyarrow.parquet

    found = {}
    for key, folders in GEMM_TABLES.items():
        parts = []
        for folder in folders:
            raw = git(
                mirror, AICONFIGURATOR, "show", f"HEAD:{GEMM_FOLDER}/{folder}/gemm_perf.parquet"
            )
            table = pyarrow.parquet.read_table(io.BytesIO(raw)).to_pydict()
            rows = {
                (m, n, k): time
                for m, n, k, time, kind in zip(
                    table["m"],
                    table["n"],
                    table["k"],
                    table["latency"],
                    table["gemm_dtype"],
                    strict=True,
                )
                if kind == "bfloat16" and time > 0
            }
            sizes = np.array([(1, *size) for size in rows], float)
            us = np.array(list(rows.values())) * 1e3
            parts.append(measured(sheet_of(key), HALF, sizes, us, 2))
        found[key] = joined(parts)
    return found


def float_products(mirror: Path) -> dict[str, Measured]:
    found = {}
    for key, place in FP32_TABLES.items():
        sizes, times = [], []
        for split in ("train", "test"):
            for operator in ("linear", "bmm"):
                path = "scripts/asplos/data/" + place.format(split, operator)
                try:
                    raw = git(mirror, NEUSIGHT, "show", f"HEAD:{path}").decode()
                except subprocess.CalledProcessError:
                    continue
                part_sizes, part_times = _neusight(raw, operator)
                if part_times:
                    least = float(np.quantile(part_times, 0.01)) - LAUNCH_FREE_US
                    sizes += part_sizes
                    times += [time - max(least, 0.0) for time in part_times]
        if times:
            us = np.array(times)
            kept = us > LAUNCH_FREE_US * 3
            found[key] = measured(sheet_of(key), FP32, np.array(sizes)[kept], us[kept], 4)
    return found


def _neusight(raw: str, operator: str) -> tuple[list[tuple[float, ...]], list[float]]:
    sizes, times = [], []
    for row in csv.DictReader(io.StringIO(raw)):
        try:
            b, m, n, k = (float(row[name]) for name in "BMNK")
            time = float(row["Latency"]) * 1e3
        except (KeyError, TypeError, ValueError):
            continue
        sizes.append((b, m, n, k) if operator == "bmm" else (1.0, b * m, n, k))
        times.append(time)
    return sizes, times


def fit_matmul(
    data: Measured, number: int, seed: int = 0, start: Sequence[float] = MATMUL_START
) -> MatmulNumbers:
    chosen = np.random.default_rng(seed).choice(
        len(data.us), min(number, len(data.us)), replace=False
    )
    some = data.some(chosen)
    wanted = np.log(some.us)
    roofline = bound(some.products)

    def off(logs: np.ndarray) -> np.ndarray:
        told = np.maximum(matmul_us(MatmulNumbers(*np.exp(logs)), some.products), roofline)
        return np.log(told) - wanted

    found = least_squares(
        off,
        np.log(start),
        bounds=(np.log(MATMUL_LOW), np.log(MATMUL_HIGH)),
        loss="soft_l1",
        f_scale=0.15,
        max_nfev=40,
        x_scale="jac",
    )
    return MatmulNumbers(*(float(f"{each:.4g}") for each in np.exp(found.x)))


def bound(products: Products) -> np.ndarray:
    flops = 2 * products.batch * products.rows * products.columns * products.depth
    moved = np.where(products.bytes > products.l2_bytes, products.bytes / products.bandwidth, 0.0)
    return np.maximum(flops / products.peak, moved)


def errors(numbers: MatmulNumbers, data: Measured) -> np.ndarray:
    told = np.maximum(matmul_us(numbers, data.products), bound(data.products))
    return np.abs(told / data.us - 1)


def fitted_products(
    tables: Mapping[str, Measured], left_out: bool
) -> tuple[dict[str, MatmulFit], list[str]]:
    """Fits of each GPU and of all together, errors on shapes that the fit had not seen."""
    fits, lines = {}, []
    generator = np.random.default_rng(1)
    shares = {key: _halves(len(data.us), generator) for key, data in tables.items()}
    for key, data in tables.items():
        seen, unseen = (data.some(rows) for rows in shares[key])
        numbers = fit_matmul(seen, 1500)
        error = errors(numbers, unseen)
        others = [
            part.some(generator.choice(len(part.us), min(1500, len(part.us)), replace=False))
            for other, part in tables.items()
            if other != key
        ]
        carried = errors(fit_matmul(joined(others), 6000), unseen) if left_out and others else None
        sheet = np.abs(bound_with_bytes(unseen.products) / unseen.us - 1)
        fits[key] = MatmulFit(
            numbers,
            len(data.us),
            _three(np.median(error)),
            None if carried is None else _three(np.median(carried)),
        )
        lines.append(
            f"| {key} | {len(data.us):,} | {np.median(sheet):.1%} | {np.median(error):.1%} "
            f"({np.quantile(error, 0.8):.0%}) | "
            + (
                "|"
                if carried is None
                else f"{np.median(carried):.1%} ({np.quantile(carried, 0.8):.0%}) |"
            )
        )
    return fits, lines


def all_together(tables: Mapping[str, Measured]) -> MatmulFit:
    generator = np.random.default_rng(2)
    parts = [
        part.some(generator.choice(len(part.us), min(3000, len(part.us)), replace=False))
        for part in tables.values()
    ]
    data = joined(parts)
    numbers = fit_matmul(data, 8000)
    error = float(np.median(errors(numbers, data)))
    return MatmulFit(numbers, sum(len(part.us) for part in tables.values()), _three(error))


def bound_with_bytes(products: Products) -> np.ndarray:
    flops = 2 * products.batch * products.rows * products.columns * products.depth
    return np.maximum(flops / products.peak, products.bytes / products.bandwidth)


def _halves(number: int, generator: Any) -> tuple[np.ndarray, np.ndarray]:
    order = generator.permutation(number)
    return order[: number // 2], order[number // 2 :]


def _three(value: float) -> float:
    return float(f"{float(value):.3g}")


# --- all other classes ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """One call of a recording."""

    row: Row
    sheet: DataSheet
    group: str
    recording: str


def samples(found: Iterable[Recording]) -> dict[tuple[str, str], list[Sample]]:
    """By class and vendor."""
    table: dict[tuple[str, str], list[Sample]] = defaultdict(list)
    for one in found:
        for row in one.rows:
            if row.counts is not None and row.counts.kernels and row.us > 0:
                table[row.counts.kind, one.sheet.vendor].append(
                    Sample(row, one.sheet, one.group, one.name)
                )
    return table


def work(chosen: Sequence[Sample]) -> Work:
    parts = [work_of([each.row.counts], each.sheet) for each in chosen]  # type: ignore[list-item]
    columns = {
        each.name: np.concatenate([getattr(part, each.name) for part in parts])
        for each in fields(Work)
    }
    return Work(**columns)


def drawn(pool: Sequence[Sample]) -> list[Sample]:
    """The same number of calls of each recording."""
    generator = np.random.default_rng(0)
    by_recording: dict[str, list[Sample]] = defaultdict(list)
    for each in pool:
        by_recording[each.recording].append(each)
    chosen = []
    for found in by_recording.values():
        number = min(len(found), CALLS_PER_RECORDING)
        chosen += [found[at] for at in generator.choice(len(found), number, replace=False)]
    return chosen


def fit_class(kind: str, pool: Sequence[Sample]) -> ClassNumbers | None:
    if len(pool) < LEAST_CALLS or len({each.group for each in pool}) < LEAST_GROUPS:
        return None
    chosen = drawn(pool)
    columns = work(chosen)
    us = np.maximum(np.array([each.row.us for each in chosen]), 0.5)
    weight = np.sqrt(us)
    weight = np.clip(weight / np.median(weight), 0.3, 6)
    wanted = np.log(us)

    def off(logs: np.ndarray) -> np.ndarray:
        return weight * (np.log(class_us(ClassNumbers(*np.exp(logs)), columns)) - wanted)

    found = least_squares(
        off,
        np.log(CLASS_START.get(kind, (2.5, 0.5, 0.7, 1.0, 1.5))),
        bounds=(np.log(CLASS_LOW), np.log(CLASS_HIGH)),
        loss="soft_l1",
        f_scale=0.3,
        max_nfev=20,
    )
    return ClassNumbers(*(float(f"{each:.4g}") for each in np.exp(found.x)))


def fit_vendor_products(pool: Sequence[Sample], start: MatmulNumbers) -> MatmulNumbers | None:
    """AMD's 16-bit products, of which there is no table: from traces."""
    pool = [each for each in pool if each.row.counts and each.row.counts.arithmetic == HALF]
    if len(pool) < LEAST_CALLS or len({each.group for each in pool}) < LEAST_GROUPS:
        return None
    chosen = drawn(pool)
    parts = [
        Measured(products_of([each.row.counts], each.sheet), np.array([each.row.us]))  # type: ignore[list-item]
        for each in chosen
    ]
    values = [getattr(start, each.name) for each in fields(start)]
    values = np.clip(values, np.array(MATMUL_LOW) * 1.01, np.array(MATMUL_HIGH) * 0.99)
    return fit_matmul(joined(parts), len(parts), start=values)


# --- recordings ----------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class Judged:
    """A recording beside what fits without its group predict."""

    recording: Recording
    us: float
    """Busy time of the calls that are counted."""
    predicted_us: float
    sheet_us: float
    counted: float
    """Share of the time of all kernels but collectives."""
    covered: float
    reasons: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """Measured over predicted busy time."""
        return self.us / self.predicted_us


def numbers_without(
    group: str | None,
    pools: Mapping[tuple[str, str], Sequence[Sample]],
    products: Mapping[str, Mapping[str, MatmulFit]],
) -> Coefficients:
    """All numbers, fitted without one group of recordings."""
    classes: dict[str, dict[str, ClassFit]] = defaultdict(dict)
    for (kind, vendor), whole in sorted(pools.items()):
        pool = [each for each in whole if each.group != group]
        if kind in kinds.MODELLED and (found := fit_class(kind, pool)) is not None:
            groups = len({each.group for each in pool})
            classes[kind][vendor] = ClassFit(found, len(pool), groups, 0.0, 0.0)
    for (kind, vendor), whole in sorted(pools.items()):
        like = BORROWED.get(kind, kinds.POINTWISE if kind in kinds.STREAMS else "")
        pool = [each for each in whole if each.group != group]
        if vendor not in classes[kind] and vendor in classes.get(like, {}):
            groups = len({each.group for each in pool})
            numbers = classes[like][vendor].numbers
            classes[kind][vendor] = ClassFit(numbers, len(pool), groups, 0.0, 0.0, borrowed=True)
    matmul = {kind: dict(fits) for kind, fits in products.items()}
    pool = [each for each in pools.get((kinds.MATMUL, "amd"), ()) if each.group != group]
    start = matmul[HALF][ANY].numbers
    if (found := fit_vendor_products(pool, start)) is not None:
        matmul[HALF][f"{ANY} amd"] = MatmulFit(found, len(pool), 0.0)
    found = Coefficients(SCHEMA, (), matmul, dict(classes), {}, spread_of([1.0] * 9))
    everyone = [*pools.get((kinds.MATMUL, "nvidia"), ()), *pools.get((kinds.MATMUL, "amd"), ())]
    slower = {
        generation: slower_unaligned(
            [
                each
                for each in everyone
                if each.group != group and each.sheet.generation == generation
            ],
            found,
        )
        for generation in GENERATIONS
    }
    return replace(found, unaligned=slower)


def slower_unaligned(pool: Sequence[Sample], found: Coefficients) -> float:
    """The median over groups of how much longer unaligned products take than predicted."""
    by_group_: dict[str, list[float]] = defaultdict(list)
    for each in drawn(pool):
        products = products_of([each.row.counts], each.sheet)  # type: ignore[list-item]
        if aligned(products)[0] or each.row.us < LEAST_UNALIGNED_US:
            continue
        told = predicted_us([each.row.counts], each.sheet, found)[0]  # type: ignore[list-item]
        by_group_[each.group].append(each.row.us / told)
    medians = [statistics.median(each) for each in by_group_.values()]
    return _three(max(statistics.median(medians), 1.0)) if medians else 1.0


LEAST_UNALIGNED_US = 20.0
"""Shorter products are floors, which alignment does not change."""


def judge(one: Recording, found: Coefficients) -> Judged:
    rows = [row for row in one.rows if row.counts and row.counts.kernels]
    counts = [row.counts for row in rows if row.counts]
    told = predicted_us(counts, one.sheet, found)
    us = np.array([row.us for row in rows])
    everything = sum(row.us for row in one.rows) + one.loose_us
    covered = sum(
        time
        for each, time in zip(counts, told, strict=True)
        if kind_fitted(found, each.kind, one.sheet)
    )
    calls = [row.call for row in one.rows if row.call is not None]
    reasons = forecast(calls, one.sheet.key, numbers=found).reasons
    total = float(told.sum())
    return Judged(
        one,
        float(us.sum()),
        total,
        float(roofline_us(counts, one.sheet).sum()),
        float(us.sum()) / max(everything, 1e-9),
        float(covered) / max(total, 1e-9),
        reasons,
    )


def usable(judged: Judged) -> bool:
    """Whether its counted calls would be answered, foreign kernels and collectives left aside."""
    return judged.predicted_us >= LEAST_US and judged.covered >= 1 - MOST_UNFITTED


Sums = dict[tuple[str, str], dict[str, np.ndarray]]
"""Predicted and measured time of a class and vendor, by group."""


def left_out(
    found: Sequence[Recording],
    pools: Mapping[tuple[str, str], Sequence[Sample]],
    products: Mapping[str, Mapping[str, MatmulFit]],
) -> tuple[list[Judged], Sums, dict[tuple[str, str], float]]:
    """Each recording judged without its group: by numbers that it did not fit, and by what the
    other groups say of how well a class is served.
    """
    by_class: dict[tuple[str, str], list[float]] = defaultdict(list)
    sums: Sums = defaultdict(lambda: defaultdict(lambda: np.zeros(2)))
    fits = {}
    for group in sorted({one.group for one in found}):
        fits[group] = numbers = numbers_without(group, pools, products)
        for one in (each for each in found if each.group == group):
            rows = [row for row in one.rows if row.counts and row.counts.kernels]
            told = predicted_us([row.counts for row in rows], one.sheet, numbers)  # type: ignore[misc]
            for row, each in zip(rows, told, strict=True):
                key = (row.counts.kind, one.sheet.vendor)  # type: ignore[union-attr]
                by_class[key].append(abs(each / max(row.us, 0.5) - 1))
                sums[key][group] += (each, row.us)
    judged = [judge(one, with_errors(fits[one.group], sums, one.group)) for one in found]
    medians = {key: float(np.median(each)) for key, each in by_class.items()}
    return [each for each in judged if each.predicted_us], sums, medians


def with_errors(numbers: Coefficients, sums: Sums, without: str | None) -> Coefficients:
    """The errors of classes over all groups but one; a class that no group judged serves nobody."""
    classes: dict[str, dict[str, ClassFit]] = defaultdict(dict)
    for kind, fits in numbers.classes.items():
        for vendor, fit in fits.items():
            told = [
                abs(predicted / us - 1)
                for group, (predicted, us) in sums[kind, vendor].items()
                if group != without
            ]
            error = _three(np.median(told)) if told else NOT_JUDGED
            classes[kind][vendor] = replace(fit, error=error)
    return replace(numbers, classes=dict(classes))


NOT_JUDGED = 9.99


# --- all of it -----------------------------------------------------------------------------------


def sources(mirror: Path) -> tuple[Source, ...]:
    def head(repository: str) -> str:
        return git(mirror, repository, "log", "-1", "--format=%H").decode().strip()

    return (
        Source(
            "github.com/ai-dynamo/aiconfigurator",
            "Apache-2.0",
            "Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES. All rights reserved.",
            head(AICONFIGURATOR),
            "bf16 matrix products",
        ),
        Source(
            "github.com/sitar-lab/NeuSight",
            "MIT",
            "Copyright (c) 2025 Georgia Institute of Technology and Microsoft Corporation",
            head(NEUSIGHT),
            "fp32 matrix products, convolutions and other operators",
        ),
        Source(
            "github.com/AMD-AGI/TraceLens",
            "MIT",
            "Copyright (c) 2024 - 2025 Advanced Micro Devices, Inc. All rights reserved.",
            head(TRACELENS),
            "torch.profiler traces of H100, B200 and MI300X",
        ),
        Source(
            "github.com/facebookresearch/HolisticTraceAnalysis",
            "MIT",
            "Copyright (c) Meta Platforms, Inc. and affiliates.",
            head(HTA),
            "torch.profiler traces of V100 and A100",
        ),
        Source(
            "public torch.profiler traces",
            "of each its own; nothing of them is kept",
            "the projects that the groups of recordings are named after",
            "",
            "traces of V100, A100, T4 and RTX 3080",
        ),
    )


def compact(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: compact(each) for key, each in value.items() if each is not None}
    if isinstance(value, (list, tuple)):
        return [compact(each) for each in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def say_busy(judged: Sequence[Judged]) -> None:
    print("\n## Busy time of a recording, its group left out\n")
    print(
        "| recording | GPU | busy ms | counted | predicted / measured | sheet / measured | says |"
    )
    print("|---|---|---|---|---|---|---|")
    for each in sorted(judged, key=lambda one: one.recording.name):
        verdict = "; ".join(each.reasons) or "an interval"
        print(
            f"| {each.recording.name.partition('/')[0][:44]} | {each.recording.sheet.key} "
            f"| {each.us / 1e3:.1f} | {each.counted:.0%} | {1 / each.ratio:.2f} "
            f"| {each.sheet_us / max(each.us, 1e-9):.2f} | {verdict} |"
        )
    chosen = [each for each in judged if usable(each)]
    sets = {
        "answered": [each for each in judged if not each.reasons],
        "at least 90% counted, 1 ms": [
            each for each in judged if each.counted >= 0.9 and each.us >= LEAST_US
        ],
        "calibrating": chosen,
    }
    for name, some in sets.items():
        error = np.array([abs(1 / each.ratio - 1) for each in some])
        inside = np.array([0.5 <= each.ratio <= 2 for each in some])
        groups = ratio_of_groups(by_group(some))
        grouped = np.array([abs(1 / each - 1) for each in groups.values()])
        double = np.array([0.5 <= each <= 2 for each in groups.values()])
        print(
            f"{name}: {len(some)} recordings, median error {np.median(error):.1%}, "
            f"within 25% {np.mean(error <= 0.25):.0%}, within a factor of two {inside.mean():.0%}; "
            f"{len(groups)} groups, median error {np.median(grouped):.1%}, "
            f"within a factor of two {double.mean():.0%}"
        )


def by_group(judged: Iterable[Judged]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for each in judged:
        found[each.recording.group].append(each.ratio)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--fetched", type=Path, required=True)
    parser.add_argument("--recordings", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    products = {}
    for kind, tables in (
        (HALF, half_products(options.fetched)),
        (FP32, float_products(options.fetched)),
    ):
        fits, lines = fitted_products(tables, left_out=True)
        fits[ANY] = all_together(tables)
        products[kind] = fits
        print(f"\n## Products, {kind}\n")
        print("| GPU | shapes | data sheet | fitted (p80) | GPU left out (p80) |")
        print("|---|---|---|---|---|", *lines, sep="\n")
        median = statistics.median(fit.mdape for key, fit in fits.items() if key != ANY)
        carried = [fit.left_out_mdape for fit in fits.values() if fit.left_out_mdape]
        print(f"median of GPUs: fitted {median:.1%}, left out {statistics.median(carried):.1%}")
    products[FP32] = {key: fit for key, fit in products[FP32].items() if key not in NOT_KEPT}
    with tempfile.TemporaryDirectory() as folder:
        fetched_traces(options.fetched, Path(folder))
        paths = [*traces_under(options.recordings), *traces_under(Path(folder))]
        found = once(recordings(paths))
    report(found, products, options.fetched, write=options.write)


NOT_KEPT = ("MI100", "P4")
"""GPUs that only help to fit the numbers of all."""


def with_amds_error(
    products: Mapping[str, Mapping[str, MatmulFit]], mdape: float
) -> dict[str, dict[str, MatmulFit]]:
    """AMD's products are judged with the recordings."""
    key = f"{ANY} amd"
    found = {kind: dict(fits) for kind, fits in products.items()}
    if key in found[HALF]:
        found[HALF][key] = replace(found[HALF][key], mdape=_three(mdape))
    return found


def report(
    found: Sequence[Recording],
    products: Mapping[str, Mapping[str, MatmulFit]],
    mirror: Path,
    *,
    write: bool,
) -> None:
    pools = samples([*found, *neusight_recordings(mirror)])
    judged, sums, by_class = left_out(found, pools, products)
    whole = with_errors(numbers_without(None, pools, products), sums, None)
    classes = {
        kind: {
            vendor: replace(fit, mdape=_three(by_class[kind, vendor]))
            for vendor, fit in fits.items()
            if (kind, vendor) in by_class
        }
        for kind, fits in whole.classes.items()
    }
    chosen = by_group(each for each in judged if usable(each))
    groups = ratio_of_groups(chosen)
    complete = replace(
        whole,
        sources=sources(mirror),
        classes=classes,
        matmul=with_amds_error(whole.matmul, by_class[kinds.MATMUL, "amd"]),
        spread=spread_of(list(groups.values())),
        groups=groups,
    )
    print(
        "\n## Classes, group left out\n\n| class | vendor | calls | groups | MdAPE | error of sum | |"
    )
    print("|---|---|---|---|---|---|---|")
    for kind, fits in classes.items():
        for vendor, fit in fits.items():
            print(
                f"| {kind} | {vendor} | {fit.calls:,} | {fit.groups} | {fit.mdape:.0%} "
                f"| {fit.error:.0%} | {'borrowed' if fit.borrowed else ''} |"
            )
    say_busy(judged)
    raw = complete.spread
    print(
        f"interval: {raw.lower:.3f} to {raw.upper:.3f} (ratio {raw.upper / raw.lower:.2f}), "
        f"coverage with each group left out {coverage(chosen):.0%} at {0.8:.0%} nominal"
    )
    text = json.dumps(compact(asdict(complete)), indent=1)
    for fold in (r"\{[^{}]*\}", r'\{\s*"numbers": \{[^{}]*\}[^{}]*\}'):
        text = re.sub(fold, lambda found: re.sub(r"\s+", " ", found[0]), text)
    text += "\n"
    print(f"{len(text)} bytes of coefficients")
    if write:
        PATH.write_text(text)
        read(PATH)


if __name__ == "__main__":
    main()
