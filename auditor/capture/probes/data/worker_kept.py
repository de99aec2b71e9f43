"""Containers that grow in a loader's workers, or are copied by reading: rows with user's lines."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from auditor.capture.instruments.assignment_sites import Sources, TensorPath
from auditor.capture.instruments.user_frames import source_path
from auditor.capture.probes.base import Context
from auditor.recordings.schema.sync import WorkerKeptRow, WorkerPagesRow

_Seen = tuple[int, int, int, int]
"""When (us), in which process, how many items more, how many bytes more."""


def add_grown(context: Context, told: Iterable[tuple[Any, Mapping[str, Any]]]) -> None:
    """Add a row for each container of the user's that held more after batches of its worker: the
    sums over all workers that live, after each batch. ``told`` is what workers wrote, or what the
    process that trains saw of its own (``workers`` 0).
    """
    grown: defaultdict[tuple[Any, ...], list[_Seen]] = defaultdict(list)
    kinds: dict[tuple[Any, ...], tuple[str, int]] = {}
    newest: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for owner, row in told:
        with suppress(KeyError, TypeError, ValueError):
            place = owner, str(row["module"]), str(row["owner"]), str(row["name"])
            kinds[place] = str(row["kind"]), int(row["workers"])
            us, pid, n, nbytes = map(int, (row["us"], row["pid"], row["n"], row["bytes"]))
            grown[place].append((us, pid, n, nbytes))
            newest[place] = row
    sources = Sources()
    for place, seen in grown.items():
        found = sources.find(_path(*place[1:]))
        if found.line is None or not context.frames.is_user(found.file):
            continue
        kind, workers = kinds[place]
        sums = [(0, 0), *_sums(sorted(seen), max(1, workers))]
        context.add(
            WorkerKeptRow(
                **found.fields,
                tensors=[n for n, _ in sums],
                nbytes=[nbytes for _, nbytes in sums],
                devices=["cpu"],
                kind=kind,
                beyond=newest[place]["beyond"] is True,
                fetched=int(newest[place]["fetched"]),
                stored=int(newest[place]["stored"]),
                workers=workers,
            )
        )


def add_copied(
    context: Context, told: Iterable[tuple[Any, Mapping[str, Any]]], number: Callable[[Any], int]
) -> None:
    """Add a row for the container of each loader's workers; ``number`` gives a loader's."""
    rows: dict[tuple[Any, ...], WorkerPagesRow] = {}
    sources = Sources()
    for owner, seen in told:
        with suppress(KeyError, TypeError, ValueError):
            place = owner, str(seen["module"]), str(seen["owner"]), str(seen["name"])
            if place not in rows:
                found = sources.find(_path(*place[1:]))
                if found.line is None or not context.frames.is_user(found.file):
                    continue
                rows[place] = WorkerPagesRow(
                    loader=number(owner),
                    workers=int(seen["workers"]),
                    file=source_path(found.file),
                    function=found.function,
                    line=found.line,
                    name=f"{found.name}{found.path}".removesuffix("[*]"),
                    n=int(seen["n"]),
                    nbytes=int(seen["bytes"]),
                    copied=[],
                )
            rows[place].copied.append(int(seen["copied"]))
    for row in rows.values():
        context.add(row)


def _path(module: str, owner: str, name: str) -> TensorPath:
    home = sys.modules.get(module)
    file = getattr(home, "__file__", None) or ""
    if not owner:
        return TensorPath(file, "<module>", 0, name, "[*]")
    cls: Any = home
    for part in owner.split("."):
        cls = getattr(cls, part, None)
    kind = cls if isinstance(cls, type) else None
    return TensorPath(file, owner, 0, "self", f".{name}[*]", kind, name)


def _sums(seen: list[_Seen], workers: int) -> Iterator[tuple[int, int]]:
    """Of the newest ``workers`` processes: an epoch may start others in the place of those before."""
    held: dict[int, tuple[int, int]] = {}
    for _, pid, n, nbytes in seen:
        if pid not in held and len(held) == workers:
            del held[next(iter(held))]
        held[pid] = n, nbytes
        yield sum(n for n, _ in held.values()), sum(nbytes for _, nbytes in held.values())
