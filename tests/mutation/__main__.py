"""``python -m tests.mutation --number 200 --seed 1``: a sample of mutants against the tests that
execute them; each survivor as it is found, then the tables.
"""

import argparse
import importlib
import random
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial

from tests.mutation import changes
from tests.mutation.changes import ROOT, Mutant
from tests.mutation.forks import PRELOADED, Task, forked, killer
from tests.mutation.touched import QUICK_S, KnownTest, chosen_for, recorded

SLOWER = 6.0  # times the CPU time of its tests, and ten seconds: then a mutant is stopped


def sample(number: int, seed: int, only: str) -> tuple[list[Mutant], int, Counter[str]]:
    """So many mutants, of how many, and how many were left out by which rule while drawing."""
    paths = [path for path in changes.modules() if only in str(path.relative_to(ROOT))]
    pool = [each for path in paths for each in changes.mutants_of(path)]
    random.Random(seed).shuffle(pool)
    drawn: list[Mutant] = []
    left_out: Counter[str] = Counter()
    for mutant, why in pool:
        if len(drawn) == number:
            break
        try:
            compile(mutant.text, "module", "exec", dont_inherit=True)
        except SyntaxError:
            why = "no code"  # noqa: PLW2901
        if why:
            left_out[why] += 1
        else:
            drawn.append(mutant)
    return drawn, len(pool), left_out


def trials(mutants: list[Mutant], tests: list[KnownTest], deadline: float) -> Iterator[Task]:
    """Each mutant with its tests, quick ones before all others."""
    for mutant in mutants:
        if time.monotonic() > deadline:
            return
        near = chosen_for(tests, mutant.file, mutant.where[0])
        rounds: tuple[list[tuple[str, str]], ...] = ([], [])
        for test in near:
            rounds[test.seconds >= QUICK_S].append((test.file, test.id))
        work = partial(killer, mutant.file, mutant.text, [each for each in rounds if each])
        limit = 10 + SLOWER * sum(test.seconds for test in near)
        yield Task((mutant, len(near)), work, limit)


def table(killed: dict[Mutant, bool], left_out: Counter[str]) -> str:
    """Killed and survived by operator, what was left out by which rule, and the share."""
    count = Counter((mutant.operator[5:], by) for mutant, by in killed.items())
    lines = ["| operator | killed | survived |", "|---|---|---|"]
    lines += [
        f"| {name} | {count[name, True]} | {count[name, False]} |"
        for name in sorted({name for name, _ in count})
    ]
    lines += [f"left out: {rule}, {number}" for rule, number in sorted(left_out.items())]
    share = 100 * sum(killed.values()) / max(1, len(killed))
    return "\n".join([*lines, f"{sum(killed.values())} of {len(killed)} killed, {share:.1f} %"])


def main() -> None:
    """Prints each survivor as it is found, then the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", default="1", help="a number, or `fresh`")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="part of the path of the files to mutate")
    parser.add_argument("--minutes", type=float, default=600.0, help="no mutant is begun later")
    asked = parser.parse_args()
    seed = secrets.randbelow(10**6) if asked.seed == "fresh" else int(asked.seed)
    sys.path.insert(0, str(ROOT))
    deadline = time.monotonic() + 60 * asked.minutes
    for name in PRELOADED:
        importlib.import_module(name)
    drawn, total, left_out = sample(asked.number, seed, asked.only)
    print(f"{total} mutants; a sample of {len(drawn)}, seed {seed}", flush=True)
    tests = recorded(asked.jobs)
    killed = {}
    for (mutant, number), by in forked(trials(drawn, tests, deadline), asked.jobs):
        killed[mutant] = by != ""
        if not killed[mutant]:
            print(f"survived {number} tests: {mutant}", flush=True)
    print(table(killed, left_out))


if __name__ == "__main__":
    main()
