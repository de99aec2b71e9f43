"""What torch and the safetensors package themselves make of a checkpoint: they read it, and look at
each tensor, in forks with limits that may die of it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import resource
import select
import signal
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

MEMORY, SECONDS = 2 << 30, 20
FIT, POISONED, REFUSED, DIED = "fit", "poisoned", "refused", "died"


def verdicts(files: Iterable[tuple[Path, bool]]) -> list[str]:
    """Of each file: ``fit``, ``poisoned`` (a float is not finite), ``refused`` or ``died``. The flag
    says whether it may be loaded with ``weights_only=False``: only where each name is known.
    """
    torch.set_num_threads(1)  # threads do not live on in a fork
    left, said = list(files), []
    while left:
        found = _asked(left)
        died = [DIED] if len(found) < len(left) else []
        said += [*found, *died]
        left = left[len(found) + len(died) :]
    return said


def _asked(files: list[tuple[Path, bool]]) -> list[str]:
    """Verdicts of one fork, until it dies."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        _child(files, write)
    os.close(write)
    raw, until = b"", time.monotonic() + 600
    while select.select([read], [], [], min(SECONDS + 10, max(0.0, until - time.monotonic())))[0]:
        piece = os.read(read, 1 << 16)
        if not piece:
            break
        raw += piece
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(read)
    os.waitpid(pid, 0)
    return raw.decode().split()


def _child(files: list[tuple[Path, bool]], write: int) -> NoReturn:
    faulthandler.disable()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    taken = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    for path, trusted in files:
        signal.alarm(SECONDS)
        verdict = REFUSED
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                content = _load(path, trusted)
                verdict = FIT
                verdict = _verdict(content)
        except ModuleNotFoundError:  # of a framework that is not installed here
            verdict = FIT
        except Exception:  # some objects cannot be shown
            pass
        except BaseException:
            verdict = REFUSED
        signal.alarm(0)
        os.write(write, verdict.encode() + b"\n")
    os._exit(0)


def _load(path: Path, trusted: bool) -> Any:
    if path.suffix == ".safetensors":
        import safetensors.torch

        return safetensors.torch.load_file(path)
    return torch.load(path, weights_only=not trusted)


def _verdict(content: Any) -> str:
    poisoned = False
    for value in _values(content):
        repr(value)
        if isinstance(value, (torch.Tensor, np.ndarray)):
            poisoned |= any(not _finite(each) for each in _dense(value))
        elif isinstance(value, np.random.Generator):
            value.random(3)
        elif isinstance(value, np.random.RandomState):
            value.rand(3)
        elif isinstance(value, np.random.BitGenerator):
            value.random_raw(3)
    return POISONED if poisoned else FIT


def _values(content: Any) -> Iterator[Any]:
    seen: set[int] = set()
    ahead = [content]
    while ahead:
        value = ahead.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, dict):
            ahead += [*value.values()]
        elif isinstance(value, (list, tuple, set, frozenset)):
            ahead += [*value]
        if isinstance(value, torch.Tensor) or hasattr(value, "__dict__"):
            ahead += [*vars(value).values()]


def _dense(value: Any) -> list[Any]:
    """Its numbers as arrays without holes; what torch cannot turn into some has none."""
    if isinstance(value, np.ndarray):
        return [value]
    try:
        if value.is_nested:
            return [each for part in value.unbind() for each in _dense(part)]
        if value.is_quantized:
            value = value.dequantize()
        if value.layout != torch.strided:
            value = value.to_dense()
        value = value.detach().clone().resolve_conj().resolve_neg()
        if value.dtype.is_complex:
            return [torch.view_as_real(value).double().numpy()]
        return [value.double().numpy()] if value.dtype.is_floating_point else [value.numpy()]
    except (RuntimeError, TypeError, NotImplementedError):
        return []


def _finite(array: Any) -> bool:
    return array.dtype.kind not in "fc" or bool(np.isfinite(array).all())
