"""``audit doctor``: what is installed, what can be looked at here, and what adds the rest.

Nothing here imports torch: a process of its own does, which a broken installation may end.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from auditor import __version__, amounts, null_device
from auditor.cli import console
from auditor.errors import AuditProblem, fault, signal_told

SCHEMA = "audit-doctor/1"
PATIENCE_S = 120.0
"""Seconds that importing torch may take."""

OLDEST_TORCH = (2, 8)
NULL_DEVICE = "torch's CUDA code without a GPU (null device)"
MARK = "audit-doctor-facts:"
ROOT = str(Path(__file__).resolve().parents[2])
BOOT = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module('auditor.capture.torch_facts', run_name='__main__')"
)
PACKAGES = (
    *("torch", "tensorboard", "torch-tb-profiler", "numpy", "pandas", "plotly", "click", "rich"),
    *("jinja2", "msgspec", "psutil", "pyyaml", "waitress", "detect-secrets", "isal", "triton"),
    "safetensors",
)
ADDS = {
    "audit view": "tensorboard",
    "traces in audit view": "torch-tb-profiler",
    "--interactive-figures": "plotly",
}
"""What a package adds."""

INSTALL = f"{sys.executable} -m pip install"

Status = Literal["yes", "no", "unknown"]
Facts = dict[str, Any]


@dataclass(frozen=True)
class Check:
    """Whether something can be done here: ``said`` is how or why not, ``remedy`` a command that
    adds it.
    """

    name: str
    status: Status
    said: str
    remedy: str = ""


def doctor(*, form: str) -> int:
    """Print what can be looked at here; the exit code is 0 whatever that is."""
    facts, why = torch_facts()
    versions = {"audit": __version__, "python": f"{platform.python_version()} ({sys.executable})"}
    versions |= {"platform": platform.platform()}
    versions |= {name: _version(name) or "not installed" for name in PACKAGES}
    checks = tuple(_checks(facts, why))
    if form == "json":
        told = {"schema": SCHEMA, "versions": versions, "checks": [asdict(each) for each in checks]}
        console.hand_over(json.dumps(told, indent=2), form="json")
        return 0
    for name, value in versions.items():
        console.say(f"{name:18}{value}")
    console.say("")
    for check in checks:
        mark = {"yes": "yes", "no": "NO", "unknown": "?"}[check.status]
        console.say(f"{mark:>4}  {check.name}: {check.said}")
        if check.remedy:
            console.say(f"      -> {check.remedy}")
    return 0


# -- torch, in a process of its own ----------------------------------------------------------------


def torch_facts() -> tuple[Facts | None, str]:
    """What torch says of itself in a child process, or None and why it says nothing."""
    if _version("torch") is None and importlib.util.find_spec("torch") is None:
        return None, "it is not installed for this Python"
    command = [sys.executable, "-c", BOOT, ROOT, MARK]
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


# -- checks ----------------------------------------------------------------------------------------


def _checks(facts: Facts | None, why: str) -> Iterator[Check]:
    yield _torch(facts, why)
    yield _gpu(facts)
    yield _guarded(NULL_DEVICE, lambda: _null_device(facts))
    for name, package in ADDS.items():
        found = _version(package)
        yield Check(
            name,
            "yes" if found else "no",
            f"{package} {found}" if found else f"{package} is not installed",
            "" if found else f"{INSTALL} {package}",
        )
    git = shutil.which("git") is not None
    yield Check("patches", "yes" if git else "no", "audit fix prints what git apply takes")
    yield _guarded("rules", _rules)
    yield _guarded("settings", _settings)
    free = shutil.disk_usage(Path.cwd()).free
    yield Check("results", "yes", f"{Path.cwd() / 'audits'} ({amounts.size(free)} free)")


def _guarded(name: str, check: Callable[[], Check]) -> Check:
    """A check that fails says so, and the others go on."""
    try:
        return check()
    except AuditProblem as problem:
        return Check(name, "no", problem.message, problem.hint)
    except Exception as error:  # whatever an installation is broken in
        return Check(name, "unknown", f"it could not be checked ({fault(error)})")


def _torch(facts: Facts | None, why: str) -> Check:
    name = "running a target"
    if facts is None:
        again = "" if "not installed" in why else "--force-reinstall "
        said = f"torch: {why}; recordings and traces can still be judged: audit analyze"
        return Check(name, "no", said, f"{INSTALL} {again}torch")
    found = facts["version"]
    if tuple(int(part) for part in found.split(".")[:2] if part.isdecimal()) < OLDEST_TORCH:
        said = f"torch {found} is older than 2.8, the oldest that is tried"
        return Check(name, "no", said, f"{INSTALL} --upgrade torch")
    if sys.platform != "linux":
        return Check(name, "unknown", f"torch {found}; only Linux was tried")
    said = f"torch {found}, {amounts.count(facts['threads'], 'thread')}; times on the CPU, and the"
    return Check(name, "yes", f"{said} GPU path rehearsed with real values (--device rehearse)")


def _gpu(facts: Facts | None) -> Check:
    if facts is None:
        return Check("a GPU", "unknown", "torch cannot be asked")
    if facts["devices"]:
        shown = ", ".join(
            f"{each['name']} ({amounts.size(each['memory'])})" for each in facts["devices"]
        )
        return Check("a GPU", "yes", f"{shown}: times, traces and memory are the GPU's own")
    if facts["cuda"] or facts["hip"]:
        return Check("a GPU", "no", f"torch finds none: {facts['why'] or 'it does not say why'}")
    there = shutil.which("nvidia-smi") is not None
    return Check(
        "a GPU",
        "no",
        "torch is a CPU build, which sees none: it is rehearsed instead",
        f"{INSTALL} --force-reinstall torch=={facts['version'].partition('+')[0]}" if there else "",
    )


def _null_device(facts: Facts | None) -> Check:
    if facts is not None and facts["devices"]:
        return Check(NULL_DEVICE, "yes", "not needed where there is a GPU")
    problem = null_device.lacking()
    if problem is not None:
        return Check(NULL_DEVICE, "no", problem.message, problem.hint)
    return Check(NULL_DEVICE, "yes", "compiled once, in seconds, and kept (docs/null-device.md)")


def _rules() -> Check:
    from auditor.judging import catalogue

    broken: list[str] = []
    known = catalogue.rules(broken)
    if broken:
        return Check("rules", "no", "; ".join(broken), "audit run --allow-broken-rules goes on")
    return Check("rules", "yes", f"{amounts.count(len(known), 'rule')}: audit rules lists them")


def _settings() -> Check:
    from auditor.judging import catalogue, config

    config.load(Path.cwd(), catalogue.rules([]), lenient=True)
    return Check("settings", "yes", "[tool.audit] of pyproject.toml is sound, or there is none")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
