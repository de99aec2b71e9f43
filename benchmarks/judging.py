"""CPU seconds to judge the recordings of a small trainer whose file has grown.

    OMP_NUM_THREADS=1 python benchmarks/judging.py

Goal: at most 5 s for 5,000 lines, and four times as long for four times as many. The file is the
trainer of ``tests/judging/test_linear.py``: a value is read in each of its functions. Patches are
planned for as many findings as a report shows.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from auditor.cli import write_results
from auditor.evidence.table import Evidence
from auditor.judging import catalogue
from auditor.judging.config import Settings
from tests.judging.test_linear import LINES, recording


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


if __name__ == "__main__":
    main()
