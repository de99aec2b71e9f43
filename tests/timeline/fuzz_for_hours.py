"""Mutate traces for as long as you like, and count: ``python tests/timeline/fuzz_for_hours.py
--minutes 60 [TRACE...]``.

Run by hand. Every mutant is read and every table computed in this process, whose memory is bounded;
anything that is raised but the project's own error, takes too long, or breaks an invariant of
:func:`test_fuzz.survive` is saved beside its traceback.
"""

import argparse
import gzip
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

from test_fuzz import PIECES, SEEDS, mutate, survive

KINDS = ("flip", "cut", "insert", "drop", "repeat")
SECONDS, BYTES, LARGEST = 30, 4 << 30, 400_000


def changes(chance: random.Random) -> list[tuple[str, float, int, bytes]]:
    weights = (4, 1, 4, 3, 2)  # a cut hides what the other kinds did behind it
    kinds = chance.choices(KINDS, weights, k=chance.randint(1, 8))
    return [
        (kind, chance.random(), chance.randint(1, 300), chance.choice(PIECES)) for kind in kinds
    ]


def swapped(raw: bytes, chance: random.Random) -> bytes:
    """Two stretches of the file change places, as a file system that lost its order would do it."""
    a, b, c, d = sorted(chance.randrange(len(raw) + 1) for _ in range(4))
    return raw[:a] + raw[c:d] + raw[b:c] + raw[a:b] + raw[d:]


def mutant(seed: bytes, chance: random.Random) -> tuple[bytes, str]:
    if chance.random() < 0.2:
        return mutate(gzip.compress(seed, 1, mtime=0), changes(chance)[:3]), "mutant.json.gz"
    raw = swapped(seed, chance) if chance.random() < 0.2 else mutate(seed, changes(chance))
    return raw, "mutant.json"


def too_slow(*_: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"))
    options = parser.parse_args()
    raws = [
        gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes()
        for p in options.traces
    ]
    seeds = [*SEEDS, *(raw for raw in raws if len(raw) <= LARGEST)]
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    signal.signal(signal.SIGALRM, too_slow)
    options.out.mkdir(exist_ok=True)
    chance, until = random.Random(options.seed), time.monotonic() + 60 * options.minutes
    done = failed = 0
    while time.monotonic() < until:
        raw, name = mutant(chance.choice(seeds), chance)
        path = options.out / name
        path.write_bytes(raw)
        signal.alarm(SECONDS)
        try:
            survive(path)
        except Exception:
            failed += 1
            path.rename(options.out / f"{failed}-{name}")
            (options.out / f"{failed}.txt").write_text(traceback.format_exc())
        finally:
            signal.alarm(0)
        done += 1
        if done % 2000 == 0:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(
                f"{done} mutants of {len(seeds)} seeds, {failed} failures, peak {peak} MB",
                flush=True,
            )
    print(f"{done} mutants of {len(seeds)} seeds in {options.minutes:g} minutes, {failed} failures")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
