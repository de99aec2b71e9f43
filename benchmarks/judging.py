"""CPU seconds to judge the recordings of a small trainer whose file has grown.

    OMP_NUM_THREADS=1 python benchmarks/judging.py

Goal: at most 5 s for 5,000 lines, and four times as long for four times as many. The file is the
trainer of ``tests/judging/test_linear.py``: a value is read in each of its functions. Patches are
planned for as many findings as a report shows.

    OMP_NUM_THREADS=1 python benchmarks/judging.py rows [--profile]

5,000 lines, 1,000 of which read a value on each of 100 steps: 100,000 rows. Goal: at most 3 s.
"""

from __future__ import annotations

import cProfile
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from auditor.cli import write_results
from auditor.evidence.table import Evidence
from auditor.judging import catalogue
from auditor.judging.config import Settings
from tests.judging.test_linear import LINES, READS, recording


def main() -> None:
    print(f"{'functions':>9} {'lines':>7} {'read in':>7} {'CPU s':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for read in (10, None):
            for functions in (60, 250, 700, 2000):
                evidence = Evidence(recording(Path(folder), functions, f"read{read}of", read))
                began = time.process_time()
                write_results.judge(evidence, catalogue.own_rules(), Settings())
                took = time.process_time() - began
                print(f"{functions:9} {functions * LINES:7} {read or functions:7} {took:6.2f}")


def rows(*, profiled: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        evidence = Evidence(recording(Path(folder), 250, "rows", steps=100, lines=READS))
        profile = cProfile.Profile()
        if profiled:
            profile.enable()
        began = time.process_time()
        found = write_results.judge(evidence, catalogue.own_rules(), Settings())
        took = time.process_time() - began
        profile.disable()
    print(f"{250 * LINES} lines, {len(found.findings)} findings: {took:.2f} s of CPU")
    if profiled:
        profile.print_stats("cumulative")


if __name__ == "__main__":
    if "rows" in sys.argv:
        rows(profiled="--profile" in sys.argv)
    else:
        main()
