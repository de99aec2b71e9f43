"""Our numbers in the words of shared/traces/truth.json, so that the two can be set side by side."""

from collections import defaultdict
from typing import Any

import numpy as np

from auditor.timeline.device import join
from auditor.timeline.intervals import is_launch, mask
from auditor.timeline.phases import PROFILER
from auditor.timeline.totals import FP8, FP32, FP64, HALF, OTHER, TF32, products
from auditor.timeline.waits import (
    COPY,
    COPY_ON_DEVICE,
    COPY_TO_DEVICE,
    COPY_TO_HOST,
    EXPLICIT,
    ITEM,
    NONZERO,
)

CAUSES = {
    ITEM: "item",
    NONZERO: "nonzero",
    COPY_TO_HOST: "copy_d2h",
    COPY_TO_DEVICE: "copy_h2d",
    COPY_ON_DEVICE: "copy_d2d",
    COPY: "copy_unknown",
}
CLASSES = {
    HALF: "tensor16",
    TF32: "tf32",
    FP32: "fp32",
    FP64: "fp64",
    FP8: "tensor16",
    OTHER: "other",
}


def ms(ns):
    return float(ns) / 1e6


def facts(line):
    """What truth.json holds of a trace, computed by us."""
    trace, steps = line.trace, line.steps
    marked = steps.source == PROFILER
    spans = sum(
        len(getattr(trace, group).start)
        for group in ("operators", "calls", "work", "frames", "syncs", "others")
    )
    return {
        "events": trace.events,
        "events_X": spans,
        "steps": {
            "n": steps.count if marked else 0,
            "names": list(steps.names) if marked else [],
            "ms": lengths(steps) if marked else [],
        },
        "runtime": runtime(line),
        "memcpy": copied(line),
        "ops": line.operator_calls,
        "sync": sync(line, marked),
        "alloc_calls": {
            one.api: {
                "n": len(one.rows),
                "ms": ms(one.ns),
                "per_step": by_step(line, one.rows) if marked else None,
            }
            for one in line.allocator_calls
        },
        "dataloader": loader(line, marked),
        "optimizer": optimizer(line, marked),
        "gpu": {str(use.device): gpu(line, use, marked) for use in line.devices},
        "mem": {f"type{one.device_type}:dev{one.device}": memory(one) for one in line.memory},
        "distributed": {"rank": trace.info.rank, "world_size": trace.info.world_size},
    }


def by_step(line, rows):
    place = line.steps.of(line.trace.calls.start[rows])
    return np.bincount(place[place >= 0], minlength=line.steps.count).tolist()


def lengths(steps):
    return [ms(one) for one in steps.end - steps.start]


def copied(line):
    found, names = line.copies, line.trace.work.name[line.copies.work]
    return {
        line.trace.names[code]: {
            "n": int((names == code).sum()),
            "ms": ms(found.ns[names == code].sum()),
            "bytes": int(found.bytes[names == code].clip(0).sum()),
        }
        for code in np.unique(names).tolist()
    }


def runtime(line):
    return {one.name: {"n": one.calls, "ms": ms(one.ns)} for one in line.runtime_calls}


def sync(line, marked):
    found, trace = line.waits, line.trace
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in range(len(found.call)):
        api = trace.names[trace.calls.name[found.call[row]]]
        cause = CAUSES.get(int(found.cause[row]))
        if found.cause[row] == EXPLICIT:
            cause = f"explicit:{api}"
        if cause is None:
            cause = f"other:{trace.names[line.tree.name[found.operator[row]]]}"
        rows[cause, api].append(row)
    result = {}
    for key, at in rows.items():
        inside = [row for row in at if found.step[row] >= 0] if marked else []
        per_step = (
            np.bincount(found.step[inside], minlength=line.steps.count).tolist() if inside else None
        )
        result[key] = {
            "n": len(at),
            "ms": ms(found.held[at].sum()),
            "in_steps": len(inside),
            "ms_in_steps": ms(found.held[inside].sum()),
            "per_step": per_step,
        }
    return result


def loader(line, marked):
    found = line.loader
    if not found:
        return None
    result = {"n": len(found.rows), "names": list(found.names)}
    if marked:
        total = line.steps.windows.length
        result |= {
            "ms_in_steps": ms(found.in_steps_ns),
            "share_of_steps_pct": 100 * found.in_steps_ns / total,
        }
    return result


def optimizer(line, marked):
    found = line.optimizer
    if not found:
        return None
    return {
        "n": len(found.rows),
        "names": list(found.names),
        "share_of_steps_pct": 100 * found.in_steps_ns / line.steps.windows.length
        if marked
        else None,
        "launches_total": found.launches,
        "foreach_ops": found.foreach_operators,
        "fused_ops": found.fused_operators,
    }


def gpu(line, use, marked):
    gaps = use.busy.gaps()
    long = (gaps.end - gaps.start)[gaps.end - gaps.start > 1_000_000]
    result: dict[str, Any] = {
        "n_kernel": use.kernels,
        "n_memcpy": use.copies,
        "streams": len(use.stream_busy_ns),
        "span_ms": ms(use.span_ns),
        "busy_ms": ms(use.busy.length),
        "kernel_us_median": use.median_kernel_ns / 1e3,
        "kernel_lt10us_pct": 100 * use.short_kernels / use.kernels if use.kernels else None,
        "gaps_gt_1ms": len(long),
        "gaps_gt_1ms_ms": ms(long.sum()),
        "largest_gap_ms": ms((gaps.end - gaps.start).max(initial=0)),
        "gemm": {},
    }
    if marked:
        steps, windows = line.steps, line.steps.windows
        each = use.busy.covered(steps.start, steps.end) / np.maximum(steps.end - steps.start, 1)
        result["step_util_pct"] = 100 * windows.overlap(use.busy) / max(windows.length, 1)
        result["step_util_each"] = (100 * each).tolist()
    for one in products(line, use):
        entry = result["gemm"].setdefault(CLASSES[one.arithmetic], {"n": 0, "ms": 0.0})
        entry["n"] += one.kernels
        entry["ms"] += ms(one.ns)
    for talk in line.communication:
        if talk.device == use.device:
            result["comm"] = {
                "n": len(talk.rows),
                "ms": ms(talk.busy.length),
                "overlap_ms": ms(talk.busy.length - talk.exposed.length),
                "overlap_pct": 100 * (1 - talk.exposed.length / max(talk.busy.length, 1)),
                "exposed_ms": ms(talk.exposed.length),
                "exposed_pct_of_span": 100 * talk.exposed.length / use.span_ns,
            }
    delays = np.sort(first_kernel_delays(line))
    if len(delays):
        result["launch_to_start_us_median"] = delays[len(delays) // 2] / 1e3
    return result


def first_kernel_delays(line):
    """To each launch's first kernel, as truth.py counts (a graph launch is none there)."""
    trace = line.trace
    kernels = np.flatnonzero(trace.work.kind == 0)
    launching = np.flatnonzero(mask(trace.names, trace.calls.name, is_launch))
    first = join(trace.calls.correlation[launching], trace.work.correlation[kernels])
    known = first >= 0
    return trace.work.start[kernels[first[known]]] - trace.calls.start[launching[known]]


def memory(one):
    totals = {"peak_total_allocated": one.peak_allocated, "peak_total_reserved": one.peak_reserved}
    return {key: value if value >= 0 else None for key, value in totals.items()}
