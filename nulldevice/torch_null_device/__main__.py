"""``python -m torch_null_device [--gpu H100] [--devices N] -- python script.py``: runs a command
on the null device.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess  # nosec B404
import sys
from pathlib import Path

from torch_null_device.environment import environment
from torch_null_device.errors import NullDeviceProblem
from torch_null_device.gpus import GPUS

PYTHON = re.compile(r"python[\d.]*")
WHERE = (
    "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0])"
)


def main(arguments: list[str] | None = None) -> None:
    """Become the command; exit code 2 with one sentence where that cannot be."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_null_device",
        description="Run a command on a CUDA device without a GPU.",
    )
    parser.add_argument(
        "--gpu", default="H100", help="model: " + ", ".join(gpu.key for gpu in GPUS)
    )
    parser.add_argument("--devices", type=int, default=1, help="how many GPUs torch finds")
    parser.add_argument(
        "--memory-gib", type=float, help="memory of each in GiB, in the place of the model's"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the command, after --")
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        parser.error("name a command: python -m torch_null_device -- python train.py")
    memory = None if options.memory_gib is None else int(options.memory_gib * (1 << 30))
    try:
        site = _site_of(command[0])
        found = environment(options.gpu, options.devices, memory_bytes=memory, site=site)
        os.execvpe(command[0], command, {**os.environ, **found})  # noqa: S606  # nosec B606
    except NullDeviceProblem as problem:
        sys.exit(_failed(f"{problem.message}{': ' * bool(problem.hint)}{problem.hint}"))
    except OSError as problem:
        sys.exit(_failed(f"{command[0]} cannot be run: {problem.strerror}"))


def _site_of(program: str) -> Path | None:
    """Where another Python than ours finds torch: what replaces one build's libraries has
    other layouts than the next one needs. None for our own Python, and for what is none.
    """
    found = shutil.which(program)
    if found is None or not PYTHON.fullmatch(Path(found).name) or _same(found, sys.executable):
        return None
    done = subprocess.run(  # the user's own command, asked where its torch is
        [found, "-c", WHERE], capture_output=True, text=True, check=False
    )
    folder = done.stdout.strip()
    return Path(folder).parent if folder else None


def _same(one: str, other: str) -> bool:
    """Whether two paths are one interpreter; the links in two virtual environments are two."""
    return os.path.abspath(one) == os.path.abspath(other)


def _failed(sentence: str) -> int:
    print(f"python -m torch_null_device: {sentence}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
