"""How much of the machine this process may use: memory and processors, within its control groups."""

import contextlib
import gc
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")


def host_memory(root: Path = ROOT) -> int:
    """Bytes of RAM this process may use: the machine's, or its control group's limit."""
    import psutil

    limits = (_number(folder / limit) for folder, limit, _, _ in _memory_groups(root))
    return min([int(psutil.virtual_memory().total), *(each for each in limits if each)])


def free_memory(root: Path = ROOT) -> int:
    """Bytes of RAM that may still be taken before something is swapped out or killed."""
    import psutil

    free = [int(psutil.virtual_memory().available)]
    for folder, limit, used, cached in _memory_groups(root):
        if most := _number(folder / limit):
            kept = dict(line.split(" ", 1) for line in _lines(folder / "memory.stat"))
            free.append(most - (_number(folder / used) or 0) + int(kept.get(cached, 0)))
    return min(free)


def processors(root: Path = ROOT) -> int:
    """Processors that this process may use at once: at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = [len(affinity(0)) if affinity is not None else os.cpu_count() or 1]
    for folder in _groups(root, "cpu"):
        quota, _, period = " ".join(_lines(folder / "cpu.max")[:1]).partition(" ")
        if not quota:
            quota = " ".join(_lines(folder / "cpu.cfs_quota_us"))
            period = " ".join(_lines(folder / "cpu.cfs_period_us"))
        if quota.isdecimal() and period.isdecimal() and int(period):
            found.append(int(quota) // int(period))
    return max(1, min(found))


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Meanwhile garbage is not looked for: millions of new containers would be walked again and
    again. An import makes what lives on: of torch's, every fifth second is spent on looking. A look
    of ours makes much that is gone when it ends, and which a collection before that would take for
    what lives on.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def _memory_groups(root: Path) -> Iterator[tuple[Path, str, str, str]]:
    """Groups that limit memory: folder, files of limit and use, and what is only cached there."""
    for folder in _groups(root, "memory"):
        yield folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        yield folder, "memory.max", "memory.current", "inactive_file"


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """Version 2: the folder of the group and of all above it; version 1: what a container sees."""
    groups = root / "sys/fs/cgroup"
    yield groups / controller
    yield groups
    own = " ".join(_lines(root / "proc/self/cgroup")).rpartition("::")[2].strip("/")
    while own and ".." not in own:
        yield groups / own
        own = own.rpartition("/")[0]


def _number(file: Path) -> int | None:
    text = " ".join(_lines(file)[:1])
    return int(text) if text.isdecimal() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
