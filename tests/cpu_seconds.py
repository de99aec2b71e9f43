"""Where the seconds of a processor go: ``pytest -p tests.cpu_seconds`` writes
``build/cpu-seconds/<worker>.json``; ``python -m tests.cpu_seconds`` prints the table of
docs/testing.md by file, and ``python -m tests.cpu_seconds dear`` writes ``tests/dear.txt``, the
tests that ``make test`` leaves to ``make test-full``. Unlike times of a clock these say the same on
a machine that does other things.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.warm import WARM

FOLDER = Path(__file__).resolve().parent.parent / "build" / "cpu-seconds"
DEAR = Path(__file__).with_name("dear.txt")
DEAR_S = 0.2
ONE_OF_EACH = (
    "tests/api/test_python.py::test_a_target_runs_in_a_process_of_its_own",
    "tests/cli/test_console.py::",
    "tests/extensions/checkpoints/test_checkpoint_examples.py::",
    "tests/extensions/plan/test_plan_command.py::test_the_program_as_it_is_and_nothing_more",
    "tests/patch/test_fix_command.py::",
    "tests/rules/test_rules.py::test_the_manuals_examples_do_what_they_say",
    "tests/runs/test_fork_server.py::test_a_fork_sees_what_a_start_sees",
    "tests/seam/test_outcomes.py::test_exit_code_and_outcome[step]",
    "tests/seam/test_outcomes.py::test_interrupt_reports_what_there_is",
    "tests/seam/test_rehearsals.py::test_a_portable_trainer_is_timed_on_the_cpu_and_rehearsed",
    "tests/test_architecture.py::",
    "tests/test_private_names.py::",
    "tests/test_redaction.py::test_nothing_of_a_run_holds_the_secret",
    "tests/test_style.py::",
)
"""How the names of tests begin that ``make test`` runs though they are dear."""
SECONDS: Counter[str] = Counter()


def used() -> float:
    """By this process, by those that it started and that have ended, and by those of the server that
    lends processes with torch.
    """
    times = os.times()
    seconds = times.user + times.system + times.children_user + times.children_system
    server = WARM._process
    if server is not None and server.poll() is None:
        lent = psutil.Process(server.pid).cpu_times()
        seconds += lent.user + lent.system + lent.children_user + lent.children_system
    return seconds


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    before = used()
    yield
    SECONDS[item.nodeid] += used() - before


def pytest_sessionfinish() -> None:
    if SECONDS:
        FOLDER.mkdir(parents=True, exist_ok=True)
        name = os.environ.get("PYTEST_XDIST_WORKER", "alone")
        (FOLDER / f"{name}.json").write_text(json.dumps(SECONDS))


def main() -> None:
    for path in FOLDER.glob("*.json"):
        SECONDS.update(json.loads(path.read_text()))
    if sys.argv[1:] == ["dear"]:
        known = set(DEAR.read_text("utf-8").splitlines()) - set(SECONDS)
        dear = {test for test, seconds in SECONDS.items() if seconds >= DEAR_S}
        named = (test for test in known | dear if not test.startswith(ONE_OF_EACH))
        DEAR.write_text("".join(f"{test}\n" for test in sorted(named)), "utf-8")
        return
    files, tests = Counter[str](), Counter(test.partition("::")[0] for test in SECONDS)
    for test, seconds in SECONDS.items():
        files[test.partition("::")[0]] += seconds  # type: ignore[assignment]
    print(f"{sum(files.values()):.0f} s, {len(SECONDS)} tests")
    for file, seconds in files.most_common(40):
        print(f"{seconds:7.1f} s {tests[file]:5} tests  {file}")


if __name__ == "__main__":
    main()
