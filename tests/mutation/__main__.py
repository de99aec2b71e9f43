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

from tests.mutation.changes import (
    EQUIVALENT,
    ROOT,
    Mutant,
    modules,
    mutants_of,
    without_effect,
)
from tests.mutation.forks import PRELOADED, SURVIVED, TIMED_OUT, Trial, run
from tests.mutation.touched import QUICK_S, KnownTest, chosen_for, recorded


def sample(number: int, seed: int, only: str) -> tuple[list[Mutant], int, Counter[str]]:
    """So many mutants, of how many, and how many were left out by which rule while drawing."""
    paths = [path for path in modules() if only in str(path.relative_to(ROOT))]
    pool = [each for path in paths for each in mutants_of(path)]
    random.Random(seed).shuffle(pool)
    drawn: list[Mutant] = []
    left_out: Counter[str] = Counter()
    for mutant, why in pool:
        if len(drawn) == number:
            break
        rule = why or without_effect(mutant.file.read_text(), mutant.text)
        if rule:
            left_out[rule] += 1
        else:
            drawn.append(mutant)
    return drawn, len(pool), left_out


def _trials(mutants: list[Mutant], tests: list[KnownTest], deadline: float) -> Iterator[Trial]:
    for mutant in mutants:
        if time.monotonic() > deadline:
            return
        near = chosen_for(tests, mutant.file, mutant.where[0])
        rounds: list[list[tuple[str, str]]] = [[], []]
        for test in near:
            rounds[test.seconds >= QUICK_S].append((test.file, test.id))
        yield Trial(
            mutant,
            tuple(tuple(each) for each in rounds if each),
            sum(test.seconds for test in near),
        )


def judged(trials: Iterator[Trial], jobs: int) -> Iterator[tuple[Trial, str, str]]:
    """Trials with their outcomes; one without a test survives at once."""
    idle: list[Trial] = []

    def with_tests() -> Iterator[Trial]:
        for trial in trials:
            if trial.rounds:
                yield trial
            else:
                idle.append(trial)

    yield from run(with_tests(), jobs)
    yield from ((trial, SURVIVED, "") for trial in idle)


def table(outcomes: list[tuple[Trial, str, str]], left_out: Counter[str]) -> str:
    """Killed and survived by file and by operator, what was left out, and the share."""
    lines = []
    for head, key in (
        ("file", lambda one: str(one.file.relative_to(ROOT))),
        ("operator", lambda one: one.operator[5:]),
    ):
        count = Counter((key(trial.mutant), outcome == SURVIVED) for trial, outcome, _ in outcomes)
        lines += [f"| {head} | killed | survived |", "|---|---|---|"]
        lines += [
            f"| {each} | {count[each, False]} | {count[each, True]} |"
            for each in sorted({name for name, _ in count})
        ]
        lines += [""]
    lines += ["left out by rule:"]
    lines += [f"- {rule}, {left_out[rule]}: {why}" for rule, why in EQUIVALENT.items()]
    killed = sum(outcome != SURVIVED for _, outcome, _ in outcomes)
    slow = sum(outcome == TIMED_OUT for _, outcome, _ in outcomes)
    idle = sum(not trial.rounds for trial, _, _ in outcomes)
    share = 100 * killed / max(1, len(outcomes))
    found = f"{killed} of {len(outcomes)} killed, {share:.1f} %"
    more = f"{slow} of them ran out of time; {idle} of the survivors are executed by no test"
    return "\n".join([*lines, "", f"{found} ({more})"])


def main() -> None:
    """Prints each survivor as it is found, then the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", default="1", help="a number, or `fresh`")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="part of the path of the files to mutate")
    parser.add_argument("--minutes", type=float, default=600.0, help="no mutant is begun later")
    parser.add_argument("--killers", action="store_true", help="print which test killed what")
    asked = parser.parse_args()
    seed = secrets.randbelow(10**6) if asked.seed == "fresh" else int(asked.seed)
    sys.path.insert(0, str(ROOT))
    deadline = time.monotonic() + 60 * asked.minutes
    for name in PRELOADED:
        importlib.import_module(name)
    drawn, total, left_out = sample(asked.number, seed, asked.only)
    print(f"{total} mutants; a sample of {len(drawn)}, seed {seed}", flush=True)
    tests = recorded(lambda text: print(text, flush=True), asked.jobs)
    outcomes = []
    for trial, outcome, by in judged(_trials(drawn, tests, deadline), asked.jobs):
        outcomes.append((trial, outcome, by))
        if outcome == SURVIVED:
            print(f"survived {trial.number} tests: {trial.mutant}", flush=True)
        elif asked.killers:
            print(f"{outcome} by {by or 'import'}: {trial.mutant.name}", flush=True)
    print(table(outcomes, left_out))


if __name__ == "__main__":
    main()
