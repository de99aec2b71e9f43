"""Reading a trace from ``.json.gz`` to all tables: ours against the readers that people use, on the
same file.

    python benchmarks/trace_reading.py [--megabytes 100] [--source TRACE.json.gz] [--rounds 3]
    [--peers PYTHON]

The file is made by repeating a real trace (or one recorded here) with times and ids moved on. Each
method runs in a fresh process, methods in turn, the order reversed every other round; printed are
the median CPU seconds after imports, and the peak memory of the process. ``--peers`` is a Python in
which HTA, pyarrow or orjson are installed where this one lacks them.

Goals (issue 4): 10 times less CPU than HTA 0.5.0, 15 times less than torch-tb-profiler 0.4.3, 2
times less than pyarrow's reader; at 1 GB a peak of at most half the raw size; the whole in less
than 30 s; growth linear (10 MB to 1 GB, exponent under 1.05); all tables no slower than reading.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

BOUNDARY = b"\n  },\n  {"
NUMBERS = re.compile(
    rb'("(?:ts|id|correlation|External id|external id|Ev Idx|Python id|Python parent id|Sequence number)": )(\d+)(?![\d]*[eE])'
)
ARGS = (
    "External id",
    "correlation",
    "stream",
    "device",
    "bytes",
    "Sequence number",
    "Python id",
    "Python parent id",
)


def enlarge(source: Path, target: Path, size: int) -> int:
    """Write about ``size`` bytes of text by repeating the events of ``source``; returns the exact
    number.
    """
    raw = (
        gzip.decompress(source.read_bytes()) if source.name.endswith(".gz") else source.read_bytes()
    )
    begin = raw.index(b"{", re.search(rb'"traceEvents"\s*:\s*\[', raw).end())
    end = raw.rindex(BOUNDARY) + 4  # the last event is left out: behind it stands the tail
    events = raw[begin + 1 : end - 1].split(
        BOUNDARY
    )  # without names of processes, which stand once in a real trace
    body = (
        b"{"
        + BOUNDARY.join(
            event for event in events if b'"ph": "M"' not in event and b'"pid": "' not in event
        )
        + b"\n  }"
    )
    head, tail = raw[:begin], b"\n  ]\n}"
    if size < len(body):
        body = body[: body.rindex(BOUNDARY, 0, size) + 4]
    pieces = NUMBERS.split(body)
    texts, keys, numbers = pieces[0::3], pieces[1::3], [int(number) for number in pieces[2::3]]
    times = [number for key, number in zip(keys, numbers, strict=True) if key == b'"ts": ']
    period, ids = (
        max(times) - min(times) + 1000,
        1 + max(number for number in numbers if number < 10**9),
    )
    moves = [
        period if key == b'"ts": ' else ids if number < 10**9 else 0
        for key, number in zip(keys, numbers, strict=True)
    ]
    fixed = [text + key for text, key in zip(texts, keys, strict=False)]
    written = 0
    with gzip.open(target, "wb", compresslevel=1) as file:
        for turn in range(max(1, round(size / len(body)))):
            changing = (
                b"%s%d" % (text, number + turn * move)
                for text, number, move in zip(fixed, numbers, moves, strict=True)
            )
            written += file.write((b",\n  " if turn else head) + b"".join(changing) + texts[-1])
        written += file.write(tail)
    return written


def ours(path: Path) -> int:
    from auditor.timeline import Timeline

    line = Timeline.of(path)
    line.compute()
    return line.trace.events


def ours_read_only(path: Path) -> int:
    from auditor.timeline import read

    return read(path).events


def ours_tree_only(path: Path) -> tuple[int, float]:
    """Only the time of the call tree counts: (rows, CPU seconds)."""
    from auditor.timeline import Timeline

    line = Timeline.of(path)
    begin = time.process_time()
    return len(line.tree.parent), time.process_time() - begin


def json_columns(path: Path) -> int:
    import numpy as np

    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    for key in ("ts", "dur"):
        np.fromiter((event.get(key, 0) for event in events), np.float64, len(events))
    for key in ("name", "cat", "tid", "pid"):
        codes: dict[object, int] = {}
        np.fromiter(
            (codes.setdefault(event.get(key), len(codes)) for event in events),
            np.int64,
            len(events),
        )
    for key in ARGS:
        values = [event.get("args", {}).get(key) for event in events]
        np.fromiter(
            (value if isinstance(value, int) else -1 for value in values), np.int64, len(events)
        )
    return len(events)


def orjson_only(path: Path) -> int:
    import orjson

    return len(orjson.loads(gzip.decompress(path.read_bytes()))["traceEvents"])


def pyarrow_pieces(path: Path) -> int:
    import pyarrow as pa
    import pyarrow.json as reader

    number = pa.int64()
    fields = [(key, pa.string()) for key in ("ph", "cat", "name")] + [
        ("pid", number),
        ("tid", number),
    ]
    fields += [
        ("ts", pa.float64()),
        ("dur", pa.float64()),
        ("args", pa.struct([(key, number) for key in ARGS])),
    ]
    options = reader.ParseOptions(
        explicit_schema=pa.schema(fields), unexpected_field_behavior="ignore"
    )
    lines = bytes.maketrans(b"\n\r", b" \n")  # one event a line
    tables = []
    with gzip.open(path, "rb") as file:
        rest = file.read(1 << 20).split(b'"traceEvents": [', 1)[1].lstrip()
        while more := file.read(8 << 20):
            rest += more
            cut = rest.rindex(BOUNDARY)
            events, rest = (
                rest[: cut + 4].replace(BOUNDARY, b"}\r{").translate(lines),
                rest[cut + 6 :],
            )
            table = reader.read_json(
                pa.py_buffer(events),
                read_options=reader.ReadOptions(block_size=2 << 20),
                parse_options=options,
            )
            for place, key in ((1, "cat"), (2, "name")):
                table = table.set_column(place, key, table[key].dictionary_encode())
            tables.append(table)
    return pa.concat_tables(tables).unify_dictionaries().num_rows


def hta(path: Path) -> int:
    from hta.common.trace_parser import ParserConfig, parse_trace_dataframe

    return len(parse_trace_dataframe(str(path), ParserConfig.get_default_cfg())[1])


def hta_analysis(path: Path) -> int:
    from hta.trace_analysis import TraceAnalysis

    return len(TraceAnalysis(trace_files={0: str(path)}).t.get_trace(0))


def tb_profiler(path: Path) -> int:
    from torch_tb_profiler.profiler.data import RunProfileData

    with tempfile.TemporaryDirectory() as cache:
        return len(RunProfileData.parse("worker", "span", str(path), cache).events)


METHODS: dict[str, Callable[[Path], int | tuple[int, float]]] = {
    "ours": ours,
    "ours, reading only": ours_read_only,
    "ours, call tree only": ours_tree_only,
    "json + columns": json_columns,
    "orjson alone": orjson_only,
    "pyarrow": pyarrow_pieces,
    "HTA parse": hta,
    "HTA TraceAnalysis": hta_analysis,
    "tb-profiler parse": tb_profiler,
}
IMPORTS = {
    "ours": "auditor.timeline",
    "ours, reading only": "auditor.timeline",
    "ours, call tree only": "auditor.timeline",
    "json + columns": "numpy",
    "orjson alone": "orjson",
    "pyarrow": "pyarrow.json",
    "HTA parse": "hta.common.trace_parser",
    "HTA TraceAnalysis": "hta.trace_analysis",
    "tb-profiler parse": "torch_tb_profiler.profiler.data",
}


def measure(method: str, path: Path) -> None:
    """In a fresh process: print one line of JSON."""
    __import__(IMPORTS[method])
    start = resource.getrusage(resource.RUSAGE_SELF)
    begin = start.ru_utime + start.ru_stime
    found = METHODS[method](path)
    done = resource.getrusage(resource.RUSAGE_SELF)
    events, seconds = (
        found if isinstance(found, tuple) else (found, done.ru_utime + done.ru_stime - begin)
    )
    print(json.dumps({"events": events, "cpu": seconds, "peak_mb": peak_mb(done.ru_maxrss)}))


def peak_mb(maxrss: int) -> float:
    """Peak memory of this process; ``ru_maxrss`` counts the parent's memory before exec, so it is
    only the second choice.
    """
    status = Path("/proc/self/status")
    found = re.search(r"VmHWM:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1] if found else maxrss) / 1e3


def run(method: str, path: Path, pythons: list[str]) -> dict[str, float] | None:
    """The measurement, in the first Python that has what the method needs."""
    for python in pythons:
        done = subprocess.run(
            [python, __file__, "--measure", method, "--file", path],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
        if "ModuleNotFoundError" not in done.stderr:
            print(f"{method} failed: {done.stderr.splitlines()[-1:]}")
            return None
    return None


def recorded(folder: Path) -> Path:
    """A trace of a small transformer, where no ``--source`` is given."""
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from overhead import transformer
    from torch.profiler import ProfilerActivity, profile, record_function

    step = transformer()
    with profile(
        activities=[ProfilerActivity.CPU], record_shapes=True, profile_memory=True
    ) as profiler:
        for number in range(10):
            with record_function(f"ProfilerStep#{number}"):
                step()
    profiler.export_chrome_trace(str(folder / "own.json"))
    return folder / "own.json"


def compare(path: Path, raw: int, rounds: int, pythons: list[str], skip: set[str]) -> None:
    rows: dict[str, list[dict[str, float]]] = {}
    left = [method for method in METHODS if method not in skip]
    for turn in range(rounds):
        for method in left if turn % 2 == 0 else list(reversed(left)):
            if found := run(method, path, pythons):
                rows.setdefault(method, []).append(found)
        left = [method for method in left if method in rows]
    base = statistics.median(row["cpu"] for row in rows["ours"])
    print(
        f"{raw / 1e6:.0f} MB of text, {path.stat().st_size / 1e6:.1f} MB packed, "
        f"{rows['ours'][0]['events']:,.0f} events"
    )
    print(f"{'':24}{'CPU s':>8}{'x ours':>8}{'peak MB':>9}{'x raw':>7}{'k events/s':>12}")
    for method, found in rows.items():
        cpu, peak = (
            statistics.median(row["cpu"] for row in found),
            statistics.median(row["peak_mb"] for row in found),
        )
        rate = found[0]["events"] / cpu / 1e3
        print(
            f"{method:24}{cpu:8.2f}{cpu / base:8.1f}{peak:9.0f}{peak / (raw / 1e6):7.2f}{rate:12,.0f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, nargs="+", default=[100])
    parser.add_argument("--source", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--skip", nargs="*", default=[], choices=list(METHODS))
    parser.add_argument("--measure", choices=list(METHODS), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        source = options.source or recorded(Path(folder))
        for megabytes in options.megabytes:
            path = Path(folder) / f"{megabytes:.0f}.json.gz"
            raw = enlarge(source, path, int(megabytes * 1e6))
            compare(path, raw, options.rounds, [sys.executable, options.peers], set(options.skip))


if __name__ == "__main__":
    main()
