"""What other readers say of the same traces: HTA 0.5.0 and torch-tb-profiler 0.4.3, each file in a
process of its own.

    python benchmarks/trace_peers.py FOLDER --hta PYTHON_WITH_HTA > peers.json python -m
    tests.timeline.against_truth FOLDER peers.json      # sets them beside the truth in
    docs/log/traces.md

Neither decides anything here: HTA gives numbers (idle time by kind), torch-tb-profiler
recommendations in prose.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

HTA = """
import sys, json, gzip, tempfile, os, logging, warnings
logging.disable(logging.CRITICAL); warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis

analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
frame = analysis.get_temporal_breakdown(visualize=False)
row = frame.iloc[0]
print(json.dumps({"said": "idle %.0f %%, compute %.0f %%" % (row["idle_time_pctg"], row["compute_time_pctg"])}))
"""
TB = """
import sys, json, tempfile, logging, re
logging.disable(logging.CRITICAL)
from torch_tb_profiler.io import Cache
from torch_tb_profiler.profiler.data import RunProfileData
from torch_tb_profiler.profiler.run_generator import RunGenerator
with tempfile.TemporaryDirectory() as folder:
    data = RunProfileData.parse("worker", "span", sys.argv[1], folder)
data.process()
data.analyze()
said = [re.sub(r"<[^>]+>", "", text).split(". ")[0] for text in data.recommendations]
print(json.dumps({"said": "; ".join(said)}))
"""


def ask(python: str, program: str, file: Path) -> str:
    """What a peer says; its error's last line in brackets where it says nothing."""
    try:
        done = subprocess.run(
            [python, "-c", program, str(file)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "[no answer in 300 s]"
    if done.returncode:
        return f"[{(done.stderr.strip().splitlines() or ['failed'])[-1][:120]}]"
    return str(json.loads(done.stdout.strip().splitlines()[-1])["said"]) or "-"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--hta", required=True, help="a Python in which HTA is installed")
    given = parser.parse_args()
    files = json.loads((given.folder / "truth.json").read_text())["files"]
    said = {}
    for name, truth in sorted(files.items()):
        if truth.get("kind") == "trace":
            path = given.folder / "data" / name
            said[name] = {"hta": ask(given.hta, HTA, path), "tb": ask(sys.executable, TB, path)}
    json.dump(said, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
