"""``make fuzz N=50000``: mutants of everything that `audit` reads of strangers, in forks of one
process that has it imported.

A batch of mutants is read in a forked child with 2 GB of memory. A mutant fails that kills its
child, takes longer than 60 s or more than 2 GB, or raises anything but the project's own errors;
its batch goes on behind it. Failures are kept in ``fuzz/corpus``, small ones for good:
tests/security/test_fuzz_corpus.py reads them in every run of the tests.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import gc
import hashlib
import io
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NoReturn

from fuzz import folders, seeds
from fuzz.readers import Failed, read_one, warm

MEMORY, SECONDS, BATCH = 2 << 30, 60, 25
CORPUS = Path(__file__).resolve().parent / "corpus"
KEPT = 64 << 10


def _limit() -> None:
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    taken = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))


def _too_slow(*_: object) -> NoReturn:
    raise Failed(f"took longer than {SECONDS} s")


def child(batch: list[tuple[str, Path]], write: int) -> NoReturn:
    """Reads a batch; says which one it is at, so that the parent knows which one killed it."""
    _limit()
    signal.signal(signal.SIGALRM, _too_slow)
    for number, (kind, path) in enumerate(batch):
        os.write(write, f"at {number}\n".encode())
        signal.alarm(SECONDS)
        try:
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                read_one(kind, path)
        except BaseException:
            said = traceback.format_exc().replace("\n", "\\n")[-3000:]
            os.write(write, f"failed {number} {said}\n".encode("utf-8", "backslashreplace"))
        signal.alarm(0)
    os.write(write, b"done\n")
    os._exit(0)


def run(batch: list[tuple[str, Path]]) -> list[tuple[int, str]]:
    """Numbers of the mutants that failed, and how."""
    failed: list[tuple[int, str]] = []
    first = 0
    while first < len(batch):
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(read)
            child(batch[first:], write)
        os.close(write)
        said, until = _all(read, time.monotonic() + (SECONDS + 15) * 3)
        if not until:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        at = 0
        for line in said.decode("utf-8", "replace").splitlines():
            word, _, rest = line.partition(" ")
            if word == "at":
                at = int(rest)
            elif word == "failed":
                number, _, how = rest.partition(" ")
                failed.append((first + int(number), how))
        if said.endswith(b"done\n"):
            break
        died = (
            f"signal {os.WTERMSIG(status)}"
            if os.WIFSIGNALED(status)
            else f"exit {os.WEXITSTATUS(status)}"
        )
        failed.append((first + at, f"its reader died: {died}"))
        first += at + 1
    return failed


def _all(read: int, until: float) -> tuple[bytes, bool]:
    """What the child says, and whether it ended; a child that is stuck in C says nothing for too
    long.
    """
    import select

    parts = b""
    while select.select([read], [], [], max(0.0, min(until - time.monotonic(), SECONDS + 15)))[0]:
        part = os.read(read, 1 << 16)
        if not part:
            os.close(read)
            return parts, True
        parts += part
    os.close(read)
    return parts, False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--kind", choices=sorted(folders.WEIGHTS), help="only mutants of this kind")
    options = parser.parse_args()
    warm()
    gc.freeze()  # a collection in a child would copy all that it shares with us
    chance = random.Random(options.seed)
    made = folders.Seeds(tuple(seeds.seeds()), seeds.recorded())
    asked = [options.kind] if options.kind else list(folders.WEIGHTS)
    weights = [folders.WEIGHTS[kind] for kind in asked]
    kinds: collections.Counter[str] = collections.Counter()
    ways: dict[str, int] = {}
    begun, done = time.monotonic(), 0
    work = Path(tempfile.mkdtemp(prefix="audit-fuzz-"))
    try:
        while done < options.number:
            batch = []
            for number in range(min(BATCH, options.number - done)):
                kind = chance.choices(asked, weights)[0]
                batch.append((kind, made.write(chance, kind, work / f"{number}")))
                kinds[kind] += 1
            for number, how in run(batch):
                _keep(*batch[number], how, ways)
            done += len(batch)
            shutil.rmtree(work)
            work.mkdir()
            if done % 1000 < BATCH:
                print(
                    f"{done:,} mutants, {sum(ways.values())} failures of {len(ways)} kinds, "
                    f"{time.monotonic() - begun:.0f} s",
                    flush=True,
                )
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(
        f"{done:,} mutants (seed {options.seed}): {dict(kinds)}; {sum(ways.values())} failures of "
        f"{len(ways)} kinds"
    )
    return 1 if ways else 0


def _large(folder: str, names: list[str]) -> list[str]:
    """Files of a folder that are too large to be kept; what is empty says nothing, either."""
    return [
        name
        for name in names
        if (file := Path(folder) / name).is_file() and not 0 < file.stat().st_size <= KEPT
    ]


def _keep(kind: str, path: Path, how: str, ways: dict[str, int]) -> None:
    lines = [line.strip() for line in how.split("\\n") if line.strip()]
    way = (
        next((line for line in reversed(lines[:-1]) if line.startswith("File")), "")
        + " "
        + (lines[-1] if lines else "")
    )
    ways[way] = ways.get(way, 0) + 1
    if ways[way] > 1:
        return
    print(f"FAILED {kind} {path.name}: {way[:300]}", flush=True)
    name = hashlib.sha256(way.encode()).hexdigest()[:10]
    CORPUS.mkdir(exist_ok=True)
    if path.is_dir():
        shutil.copytree(path, CORPUS / f"{kind}-{name}", dirs_exist_ok=True, ignore=_large)
    elif path.stat().st_size <= KEPT:
        shutil.copy(path, CORPUS / f"{kind}-{name}{path.suffix}")


if __name__ == "__main__":
    sys.exit(main())
