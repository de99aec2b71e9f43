"""``audit run`` under a launcher: as one of its ranks, and ``audit run -- torchrun ... train.py``."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from auditor.cli import out_folder, progress_display
from auditor.cli.usage import EXIT_INTERRUPTED, say_problem
from auditor.errors import AuditProblem
from auditor.runs.launched_ranks import LaunchedRanks
from auditor.runs.launchers import launched
from auditor.runs.plan import Plan
from auditor.runs.rank_meeting import RankMeeting

INSTEAD = {
    "accelerate": "accelerate launch --module auditor run train.py -- ARGS",
    "deepspeed": "deepspeed --module auditor run train.py -- ARGS",
    "srun": "srun python -m auditor run train.py -- ARGS",
    "mpirun": "mpirun python -m auditor run train.py -- ARGS",
    "mpiexec": "mpiexec python -m auditor run train.py -- ARGS",
}
"""Launchers that are not started by us, and how audit takes the place of the script."""

EXIT_FILE = "TORCH_STEP_AUDIT_EXIT_FILE"
"""Variable with the file for rank 0's exit code: torchrun makes any other than 0 a 1."""

SPLIT = """
import json, sys
from torch.distributed.run import get_args_parser
found = get_args_parser().parse_args(sys.argv[1:])
print(json.dumps([len(found.training_script_args), found.module, found.no_python]))
"""
"""Where torchrun's own options end only its own parser knows."""


# -- as one rank -----------------------------------------------------------------------------------


def meeting(out: str | None, nproc: int) -> RankMeeting | None:
    """Where this process meets the other ranks, if a launcher started it as one of several.

    Raises :class:`AuditProblem` if ``--nproc`` asks for ranks of ours as well.
    """
    own = launched(os.environ)
    if own is None:
        return None
    if nproc > 1:
        raise AuditProblem(
            f"--nproc {nproc} starts ranks, and this is one of {own.world_size} that a launcher "
            "started already",
            "leave out --nproc",
        )
    return RankMeeting(Path(out or out_folder.PARENT), own)


def folder(met: RankMeeting | None, make: Callable[[], tuple[Path, bool]]) -> tuple[Path, bool]:
    """The folder for the results, and whether it is ours to remove: rank 0 makes it, the others are
    told. Raises ``SystemExit`` in these if rank 0 cannot begin: it says why.
    """
    if met is not None and met.own.rank:
        found = met.join()
        if found is None:
            sys.exit(0)
        return found, False
    try:
        return make()
    except AuditProblem:
        if met is not None:
            met.refuse()
        raise


@contextmanager
def led(met: RankMeeting | None, home: Path) -> Iterator[LaunchedRanks | None]:
    """The ranks of a launcher, led by this one. None if no launcher has started us."""
    if met is None:
        yield None
        return
    ranks = LaunchedRanks(met)
    met.open(home)
    try:
        yield ranks
    finally:
        met.close()


def follow(met: RankMeeting, plan: Plan, timeout: float | None, *, quiet: bool) -> int:
    """What a rank other than 0 does. It ends well whatever became of its target: a launcher ends
    all ranks when one does not, and rank 0 has still to write the report.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    echo = (lambda text: None) if quiet else progress_display.echo
    LaunchedRanks(met).follow(plan, deadline, echo)
    return 0


# -- starting torchrun -----------------------------------------------------------------------------


def is_launcher(target: str) -> bool:
    """Whether a TARGET is the name of a launcher, which stands before the program."""
    return os.path.basename(target) in ("torchrun", *INSTEAD)


def through(target: str, args: Sequence[str]) -> int:
    """Start torchrun with ``audit run`` in the place of its program; returns the exit code.

    Raises :class:`AuditProblem` for other launchers, and for what torchrun cannot read.
    """
    name = os.path.basename(target)
    if name in INSTEAD:
        raise AuditProblem(
            f"audit does not start {name} itself",
            f"write {INSTEAD[name]}, or for one process audit run train.py -- ARGS",
        )
    words = sys.argv[1:]
    options = words[words.index("run") + 1 : words.index("--")] if "--" in words else []
    head, program = _split(args)
    with tempfile.TemporaryDirectory(prefix="audit-") as folder:
        ended = Path(folder) / "exit"
        command = [
            *(sys.executable, "-m", "torch.distributed.run", *head),
            *("-m", "auditor", "run", *options, *program),
        ]
        process = subprocess.Popen(command, env={**os.environ, EXIT_FILE: str(ended)})
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.wait()
            code = EXIT_INTERRUPTED
        return int(ended.read_text()) if ended.is_file() else code


def _split(args: Sequence[str]) -> tuple[list[str], list[str]]:
    """Options of torchrun's own, and the program with its arguments as ``audit run`` takes them."""
    done = subprocess.run(
        [sys.executable, "-c", SPLIT, *args], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["it cannot be imported"])[-1]
        raise AuditProblem(
            f"torchrun: {said.rpartition('error: ')[2]}",
            "as in audit run -- torchrun --nproc-per-node 2 train.py",
        )
    behind, as_module, no_python = json.loads(done.stdout.splitlines()[-1])
    if no_python:
        raise AuditProblem("torchrun --no-python runs what is no Python program", "leave it out")
    cut = len(args) - behind
    head = [word for word in args[: cut - 1] if not (as_module and word in ("-m", "--module"))]
    program = [*(("-m",) if as_module else ()), args[cut - 1]]
    return head, [*program, "--", *args[cut:]] if behind else program


def told(run: Callable[[], int]) -> int:
    """The exit code of ``run``; where torchrun is ours, the code is written and torchrun gets 0."""
    ended = os.environ.pop(EXIT_FILE, "")
    if not ended or os.environ.get("RANK") != "0":
        return run()
    try:
        code = run()
    except Exception as error:
        code = say_problem(error)
    Path(ended).write_text(str(code))
    return 0
