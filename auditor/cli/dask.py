"""A Dask cluster as the place where ranks are read: the same plain function, run there instead of
in a pool of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from auditor.errors import AuditProblem


def on(address: str) -> Callable[[Callable[[Path], Any], Sequence[Path]], Iterable[Any]]:
    """What :func:`auditor.timeline.fleet` takes as ``run``. The workers must see the files under
    the same paths.

    Raises :class:`AuditProblem` where Dask is not installed, or nobody answers at the address.
    """
    try:
        from distributed import Client  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise AuditProblem(
            "--dask needs Dask, and it is not installed",
            "pip install distributed, or leave --dask out",
        ) from None

    def run(work: Callable[[Path], Any], paths: Sequence[Path]) -> Iterable[Any]:
        try:
            client = Client(address, timeout="10s")
        except (OSError, ValueError) as error:
            raise AuditProblem(f"no Dask scheduler answers at {address}: {error}") from None
        with client:
            found: list[Any] = client.gather(
                client.map(work, [path.resolve() for path in paths], pure=False)
            )
            return found

    return run
