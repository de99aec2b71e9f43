"""How often does ``audit compare`` call two runs of the same program a regression?

    OMP_NUM_THREADS=1 python benchmarks/compare_noise.py record FOLDER [rounds]    # 40 rounds of 3
    trainers: 10 minutes idle python benchmarks/compare_noise.py judge FOLDER > docs/log/compare.md

Each round records one run of each of three unchanged trainers, in a fresh process: its timing pass
of 50 steps, as `audit run` takes it. Then 200 pairs of different runs of one trainer are drawn (a
fixed seed; any two runs, whatever lay between them) and compared as two recordings are. A pair is a
false alarm where the interval lies beyond the bound. To see what can be found, the second run of
each pair is also made slower by a factor.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from auditor.evidence.table import Evidence  # noqa: E402
from auditor.extensions.verify.intervals import (  # noqa: E402
    Run,
    of_recordings,
    quiet_run,
)
from auditor.recordings.folder import Recording  # noqa: E402
from auditor.runs import child_process  # noqa: E402
from auditor.runs.plan import Passes, Plan  # noqa: E402

TRAINERS = {
    "energy_flow/repaired": "trainer:step",
    "plain_script": "train.py",
    "nano_gpt": "trainer:train_step",
}
STEPS, WARMUP = 50, 5
COMPARISONS = 200


def record(folder: Path, rounds: int) -> None:
    for number in range(rounds):
        for name, target in TRAINERS.items():
            os.chdir(ROOT / "examples" / name)
            out = folder / name.replace("/", "-") / f"{number:03d}"
            plan = Plan(
                target,
                (),
                STEPS,
                WARMUP,
                "cpu",
                str(out),
                ("steps",),
                purpose=Passes(trace=0),
            )
            recording = child_process.record_once(
                plan, None, lambda *progress: None, lambda text: None
            )
            run = quiet_run(Evidence(recording))
            print(
                f"{name} {number}: {statistics.median(run.us):.0f} us, busy {run.busy:.2f}",
                file=sys.stderr,
                flush=True,
            )


def judge(folder: Path) -> None:
    runs = {name: _runs(folder / name.replace("/", "-")) for name in TRAINERS}
    pairs = [pair for each in runs.values() for pair in itertools.permutations(each, 2)]
    drawn = random.Random(7).sample(pairs, min(COMPARISONS, len(pairs)))
    total = sum(map(len, runs.values()))
    print(
        "# How often `audit compare` is wrong\n\n"
        f"{(__doc__ or '').split(chr(10) * 2, 2)[2].strip()}\n"
    )
    print(
        f"{len(drawn)} comparisons of {total} runs on this machine ({os.cpu_count()} cores, shared "
        "with others):\n"
    )
    print(
        "| trainer | runs | median step | spread of raw medians | spread without queueing | busy |"
    )
    print("|---|---|---|---|---|---|")
    for name, each in runs.items():
        print(
            _row(
                name, each, [Recording(path) for path in _folders(folder / name.replace("/", "-"))]
            )
        )
    print(
        "\nSpread: largest median step time of a run over the smallest. Busy: share of a run's "
        "time in which"
    )
    print(
        "its thread was ready and something else had the processor, from the least to the most "
        "busy run.\n"
    )
    print(
        "| the second run is made slower by | a difference is proven | it fails `--max-regression "
        "5%` |"
    )
    print("|---|---|---|")
    for slower in (0.0, 0.05, 0.1, 0.2, 0.3, 0.5):
        print(_found(drawn, slower))


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if (path / "manifest.json").is_file())


def _runs(folder: Path) -> list[Run]:
    return [
        run
        for path in _folders(folder)
        if len((run := quiet_run(Evidence(Recording(path)))).us) == STEPS
    ]


def _row(name: str, runs: list[Run], recordings: list[Recording]) -> str:
    raw = [
        statistics.median(row["us"] for row in each.rows("steps") if row["pass"] == "quiet")
        for each in recordings
        if each.has("steps")
    ]
    clean = [statistics.median(run.us) for run in runs]
    busy = [run.busy for run in runs]
    return (
        f"| `{name}` | {len(runs)} | {statistics.median(clean) / 1e3:.1f} ms | "
        f"{max(raw) / min(raw):.2f}x "
        f"| {max(clean) / min(clean):.2f}x | {min(busy):.0%} to {max(busy):.0%} |"
    )


def _found(pairs: list[tuple[Run, Run]], slower: float) -> str:
    intervals = [
        of_recordings([one], [Run(tuple(us * (1 + slower) for us in other.us), other.busy)])
        for one, other in pairs
    ]
    known = [each for each in intervals if each is not None]
    proven, failed = (
        sum(each.excludes_one for each in known),
        sum(each.low > 1.05 for each in known),
    )
    what = f"{slower:.0%}" if slower else "nothing (A/A)"
    return f"| {what} | {proven} of {len(known)} | {failed} of {len(known)} |"


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(Path(sys.argv[2]).resolve(), int(sys.argv[3]) if len(sys.argv) > 3 else 40)
    else:
        judge(Path(sys.argv[2]))
