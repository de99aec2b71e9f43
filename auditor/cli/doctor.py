"""``audit doctor``: what is installed, what can be looked at here, and what adds the rest.

Nothing here imports torch: a process of its own does, which a broken installation may end.
"""

import importlib.metadata
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from auditor import __version__, amounts, null_device
from auditor.cli import console
from auditor.errors import signal_told

PATIENCE_S = 120.0
"""Seconds that importing torch may take."""

OLDEST_TORCH = (2, 8)
MARK = "audit-doctor-facts:"
ADDS = {
    "audit view": "tensorboard",
    "traces in audit view": "torch-tb-profiler",
    "--interactive-figures": "plotly",
}
"""What a package adds."""

INSTALL = f"{sys.executable} -m pip install"

Facts = dict[str, Any]


class Check(NamedTuple):
    """Whether something can be done here: ``said`` is how or why not, ``remedy`` a command."""

    name: str
    status: Literal["yes", "no", "unknown"]
    said: str
    remedy: str = ""


def doctor() -> int:
    """Print what can be looked at here; the exit code is 0 whatever that is."""
    checks = tuple(_checks(*torch_facts()))
    python = f"{platform.python_version()} ({sys.executable})"
    versions = {"audit": __version__, "python": python, "platform": platform.platform()}
    for name, value in versions.items():
        console.say(f"{name:18}{value}")
    console.say("")
    for check in checks:
        console.say(f"{check.status.upper():>7}  {check.name}: {check.said}")
        if check.remedy:
            console.say(f"         -> {check.remedy}")
    return 0


def torch_facts() -> tuple[Facts | None, str]:
    """What torch says of itself in a child process, or None and why it says nothing."""
    command = [sys.executable, "-m", "auditor.capture.torch_facts", MARK]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=PATIENCE_S, check=False, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return None, f"importing it takes longer than {PATIENCE_S:.0f} s"
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    told = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
    if done.returncode == 0 and told:
        return json.loads(told[-1]), ""
    if done.returncode < 0:
        return None, f"importing it ends the process: {signal_told(-done.returncode)}"
    words = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return None, f"it cannot be imported: {(words or ['it says nothing'])[-1][:300]}"


def _checks(facts: Facts | None, why: str) -> Iterator[Check]:
    yield _torch(facts, why)
    lacking = null_device.lacking()
    if facts is None:
        yield Check("a GPU", "unknown", "torch cannot be imported")
    elif facts["devices"]:
        shown = (f"{each['name']} ({amounts.size(each['memory'])})" for each in facts["devices"])
        yield Check("a GPU", "yes", f"{', '.join(shown)}: times, traces and memory are its own")
    else:
        yield Check("a GPU", "no", facts["why"] or "torch finds no GPU; the GPU path is rehearsed")
        named = "torch's CUDA code without a GPU (null device)"
        if lacking is None:
            yield Check(named, "yes", "compiled once, in seconds, and kept (docs/null-device.md)")
        else:
            yield Check(named, "no", lacking.message, lacking.hint)
    for name, package in ADDS.items():
        found = _version(package)
        yield (
            Check(name, "yes", f"{package} {found}")
            if found
            else Check(name, "no", f"{package} is not installed", f"{INSTALL} {package}")
        )
    git = shutil.which("git") is not None
    yield Check("patches", "yes" if git else "no", "audit fix prints diffs for git apply")


def _torch(facts: Facts | None, why: str) -> Check:
    name = "running a target"
    if facts is None:
        said = f"torch: {why}; recordings and traces can still be judged: audit analyze"
        return Check(name, "no", said, f"{INSTALL} torch")
    found = facts["version"]
    if tuple(int(part) for part in found.split(".")[:2] if part.isdecimal()) < OLDEST_TORCH:
        said = f"torch {found} is older than 2.8, the oldest that is tried"
        return Check(name, "no", said, f"{INSTALL} --upgrade torch")
    said = f"torch {found}, {amounts.count(facts['threads'], 'thread')}; times on the CPU, and the"
    return Check(name, "yes", f"{said} GPU path rehearsed with real values (--device rehearse)")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
