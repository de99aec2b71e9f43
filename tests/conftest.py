"""Fixtures that several rooms share."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

from tests.gathered import tree_of
from tests.leftover_workers import end_workers
from tests.warm import WARM, run_python

ROOT = Path(__file__).resolve().parent.parent

os.environ["AUDIT_CACHE_DIR"] = ""  # tests keep nothing in the user's cache

# How long an example takes says something about the machine that the tests share with others, not
# about the code. `make test-full` draws anew, with --hypothesis-profile full.
TOO_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("the same each time", max_examples=25, derandomize=True, **TOO_SLOW)
settings.register_profile("full", max_examples=500, **TOO_SLOW)
settings.load_profile("the same each time")

# A shell ignores these for what it starts in the background, and so would all that tests start.
for ignored in (signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(ignored) is signal.SIG_IGN:
        starts_with = signal.default_int_handler if ignored == signal.SIGINT else signal.SIG_DFL
        signal.signal(ignored, starts_with)

LONGEST = """
    rules/test_rules.py seam/test_early_failures.py seam/test_rehearsals.py
    seam/test_outcomes.py test_examples.py seam/test_scripts.py seam/test_launchers.py
    extensions/reproduce/test_reproduce_command.py extensions/verify/test_verify_command.py
    seam/test_rehearsed_values.py
""".split()
"""Files that take longest, first: whoever gets one of them last would keep the other worker
waiting.
"""


WHOLE_AUDITS = """
    api/test_pytest_plugin.py api/test_types.py extensions/drill/test_drill_command.py
    extensions/drill/test_drill_examples.py extensions/reproduce/test_reproduce_command.py
    extensions/test_mcp_server.py extensions/verify/test_verify_command.py
    judging/test_rule_packs.py seam/test_core_packages.py
    seam/test_fixes.py seam/test_launchers.py seam/test_processes.py
    seam/test_rehearsed_values.py seam/test_replaced_functions.py seam/test_replay.py
    seam/test_beside.py seam/test_early_failures.py seam/test_formats.py seam/test_scripts.py
    seam/test_shadowed_packages.py seam/test_sheltered.py test_contributing.py
""".split()
"""Files whose tests start audits in processes of their own, for seconds each: ``make test-full`` runs
them. Some of each kind stay in ``make test``: seam/test_outcomes and test_rehearsals.
"""


def pytest_configure(config: pytest.Config) -> None:
    """``pytest tests/rules/sync`` is the cases of that family: they lie in folders of their rules,
    and one file runs all.
    """
    rules = ROOT / "tests" / "rules"
    for place, given in enumerate(config.args):
        path = (config.invocation_params.dir / given).resolve()
        if path.parent == rules and not path.exists() and any(rules.glob(f"{path.name}0*")):
            asked = config.option.keyword
            config.option.keyword = path.name.upper() + (f" and ({asked})" if asked else "")
            config.args[place] = str(rules / "test_rules.py")


@pytest.fixture(autouse=True)
def _anomaly_mode_as_it_was() -> Iterator[None]:
    """Cases leave it on: then every backward of later tests reads whether its results are NaN."""
    yield
    torch = sys.modules.get("torch")
    if torch is not None and torch.is_anomaly_enabled():
        torch.autograd.set_detect_anomaly(False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest files first, the others in their order."""
    whole = {str(ROOT / "tests" / name) for name in WHOLE_AUDITS}
    dear = set((ROOT / "tests" / "dear.txt").read_text("utf-8").splitlines())
    for item in items:
        if str(item.path) in whole or item.nodeid in dear:
            item.add_marker(pytest.mark.full)
    places = {str(ROOT / "tests" / name): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(str(item.path), len(places)))


SETTLED = [0]
"""Modules that were imported when :func:`libraries_are_no_garbage` last looked."""
MANY = 20_000
"""Objects that tests left behind, from which it looks again: syntax trees that are kept, reports."""


@pytest.fixture(autouse=True)
def libraries_are_no_garbage() -> None:
    """Where a test has imported libraries or left many objects, every collection and every search
    of all objects leaves them out from now on: of those there are a million once a test has made an
    optimizer (torch imports its compiler then), and a case of a rule collects several times.
    """
    if len(sys.modules) > SETTLED[0] + 50 or len(gc.get_objects(generation=2)) > MANY:
        gc.collect()
        gc.freeze()
        SETTLED[0] = len(sys.modules)


@pytest.fixture(scope="module", autouse=True)
def no_worker_outlives_its_file() -> Iterator[None]:
    """Or another file's test pays for their end."""
    yield
    end_workers()


@pytest.fixture(scope="module", autouse=True)
def no_syntax_tree_outlives_its_file() -> Iterator[None]:
    """A million nodes, and every collection would look at each."""
    yield
    tree_of.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def no_other_test_is_the_users(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test records in this process is the program's and of its own file: the globals of
    hundreds of other tests would be searched, step by step, and their source be read.
    """
    frames = sys.modules.get("auditor.capture.instruments.user_frames")
    if frames is None:
        yield
        return
    user_file = frames.Frames.user_file

    def of_this_test(self: object, module: ModuleType) -> str | None:
        other = module.__name__.rpartition(".")[2].startswith("test_")
        return None if other and module is not request.module else user_file(self, module)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames.Frames, "user_file", of_this_test)
        yield


@pytest.fixture(autouse=True)
def _compiles_as_a_new_process_does() -> Iterator[None]:
    """The compiler gives a function up after eight compilations, and every test that compiles an
    ``nn.Linear`` compiles the same one.
    """
    yield
    compiler = sys.modules.get("torch._dynamo")
    if compiler is not None:
        compiler.reset()


@pytest.fixture(scope="session")
def audit():
    """Runs the command line as a user would: ``audit("run trainer:step", cwd=folder)``; torch is
    imported already (tests/warm.py) where that can be, and with ``cold`` not.
    """

    def call(
        line: str, *words: str, cwd: Path, timeout: float = 180, cold: bool = False, **env: str
    ) -> subprocess.CompletedProcess[str]:
        code = "from auditor.cli.main import main; main()"
        surroundings = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "NO_COLOR": "1",
            "COLUMNS": "120",
            **env,
        }
        words = *line.split(), *words
        return run_python(code, words, cwd=cwd, timeout=timeout, env=surroundings, cold=cold)

    return call


@pytest.fixture(scope="session", autouse=True)
def no_server_outlives_its_session() -> Iterator[None]:
    yield
    WARM.end()


@pytest.fixture(autouse=True)
def _no_process_group_is_left() -> Iterator[None]:
    """Workers run many tests in one process, and some of them ask whether it is a rank."""
    yield
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
