"""Our verdicts on both corpora beside torch's, picklescan's and fickling's. By hand: ``python -m
fuzz.compare_scanners PYTHON``.

PYTHON is the interpreter of an environment with ``picklescan`` and ``fickling`` (and no need of
torch); neither is a dependency of ours. What is printed stands in docs/checkpoints.md.
"""

from __future__ import annotations

import collections
import json
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

from auditor.evidence.checkpoints import Checkpoint
from auditor.extensions.checkpoints.contents import NotACheckpoint
from auditor.extensions.checkpoints.scan import scan
from auditor.isolation import ReaderDied, isolated
from fuzz import hostile_checkpoints, real_checkpoints

OTHERS = """
import json, logging, os, sys
logging.disable(logging.CRITICAL)
from picklescan.scanner import scan_file_path
from fickling.fickle import Pickled, StackedPickle
from fickling.analysis import check_safety, Severity
import zipfile

def picklescan(path):
    try:
        found = scan_file_path(path)
    except Exception as error:
        return "error"
    if found.scan_err:
        return "error"
    return "dangerous" if found.issues_count else "suspicious" if any(g.safety.value == "suspicious" for g in found.globals) else "clean"

def fickling(path):
    worst = -1
    try:
        if zipfile.is_zipfile(path):
            pickles = [archive.read(name) for archive in [zipfile.ZipFile(path)] for name in archive.namelist() if name.endswith(".pkl")]
            parts = [Pickled.load(raw) for raw in pickles]
        else:
            parts = list(StackedPickle.load(open(path, "rb"), fail_on_error=False) if hasattr(StackedPickle, "load") else [])
        for part in parts:
            worst = max(worst, check_safety(part).severity.severity if hasattr(check_safety(part).severity, "severity") else check_safety(part).severity.value[0])
    except RecursionError:
        return "error"
    except Exception as error:
        return "error"
    return {-1: "nothing", 0: "clean"}.get(worst, f"level {worst}")

for line in sys.stdin:
    path = line.strip()
    pid = os.fork()
    if not pid:
        import resource; resource.setrlimit(resource.RLIMIT_CPU, (20, 20)); resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.setrecursionlimit(3000)
        print(json.dumps([path, picklescan(path), fickling(path)]), flush=True); os._exit(0)
    if os.waitpid(pid, 0)[1]:
        print(json.dumps([path, "died", "died"]), flush=True)
"""


def ours(path: Path) -> str:
    try:
        found = Checkpoint(scan(path))
    except NotACheckpoint:
        return "no checkpoint"
    if not found.good:
        return "BAD"
    return "good, with a note" if found.scan.foreign or found.scan.beyond else "good"


def torchs(path: Path) -> str:
    import torch

    def load() -> bool:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.load(path, weights_only=True)
        return True

    if path.suffix == ".safetensors":
        return "not asked"
    try:
        isolated(load, seconds=10.0, memory=8 << 30)
    except ReaderDied as died:
        return "refuses" if "failed" in str(died) else "dies"
    return "loads"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for kind, corpus in (("hostile", hostile_checkpoints), ("real", real_checkpoints)):
            paths = corpus.write(Path(folder) / kind)
            told = "\n".join(map(str, paths))
            done = subprocess.run(
                [sys.argv[1], "-c", OTHERS], input=told, capture_output=True, text=True, check=True
            )
            others = {
                Path(path).name: (one, two)
                for path, one, two in map(json.loads, done.stdout.splitlines())
            }
            rows = [
                (path.name, ours(path), torchs(path), *others.get(path.name, ("died", "died")))
                for path in paths
            ]
            print(f"\n{kind}: {len(rows)} files")
            for place, who in enumerate(
                ("torch-step-audit", "torch weights_only=True", "picklescan", "fickling"), 1
            ):
                print(
                    f"  {who:24}",
                    dict(collections.Counter(row[place] for row in rows).most_common()),
                )
            print("  good, and flagged by another:")
            for row in rows:
                if row[1].startswith("good") and (
                    row[2] in ("refuses", "dies") or row[3] != "clean" or row[4].startswith("level")
                ):
                    print("   ", *row, sep="  ")


if __name__ == "__main__":
    main()
