"""Where the seconds of a processor go, by test file: ``pytest -p tests.cpu_seconds`` writes
``build/cpu-seconds/<worker>.json``, and ``python -m tests.cpu_seconds`` prints the table of
docs/testing.md. Unlike times of a clock these say the same on a machine that does other things.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.warm import WARM

FOLDER = Path(__file__).resolve().parent.parent / "build" / "cpu-seconds"
SECONDS: Counter[str] = Counter()
TESTS: Counter[str] = Counter()


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
    before, file = used(), item.nodeid.partition("::")[0]
    yield
    SECONDS[file] += used() - before
    TESTS[file] += 1


def pytest_sessionfinish() -> None:
    if SECONDS:
        FOLDER.mkdir(parents=True, exist_ok=True)
        name = os.environ.get("PYTEST_XDIST_WORKER", "alone")
        (FOLDER / f"{name}.json").write_text(json.dumps([SECONDS, TESTS]))


def main() -> None:
    for path in FOLDER.glob("*.json"):
        seconds, tests = json.loads(path.read_text())
        SECONDS.update(seconds)
        TESTS.update(tests)
    print(f"{sum(SECONDS.values()):.0f} s, {sum(TESTS.values())} tests")
    for file, seconds in SECONDS.most_common(40):
        print(f"{seconds:7.1f} s {TESTS[file]:5} tests  {file}")


if __name__ == "__main__":
    main()
