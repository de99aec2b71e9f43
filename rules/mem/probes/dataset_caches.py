"""What a dataset stores for samples that the process that trains fetches again."""

import functools
import threading
import weakref
from typing import Any

from torch.utils.data import get_worker_info

from auditor.capture.instruments.torch_private.data import FETCHERS
from auditor.capture.instruments.worker_memory import FetchedBefore, WorkerContainers
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.data.worker_kept import add_grown

MOST, NOTES = 4, 4096
"""Datasets that are looked at, and batches whose numbers are noted before that."""


class _Watched:
    """A dataset: which samples were fetched, and its containers, from the pass's start on."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = weakref.ref(dataset)
        self.before = FetchedBefore()
        self.again = 0
        self.containers: WorkerContainers | None = None
        self.grown: list[dict[str, Any]] = []


class DatasetCachesProbe(Probe):
    """Writes ``worker_kept``: containers that a fetched sample is stored in each time again. Which
    samples were fetched is noted from the first step on: an epoch may be longer than the pass.
    """

    name = "dataset_caches"
    parts = ("worker_kept",)
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._datasets: dict[int, _Watched] = {}
        self._rows: list[tuple[int, dict[str, Any]]] = []
        self._notes: list[tuple[int, Any]] = []

    def install(self) -> None:
        for owner in FETCHERS[:1]:  # an iterable has no samples by number
            self._watch(owner)

    def _watch(self, owner: Any) -> None:
        original, fetches = vars(owner)["fetch"], self.guarded(self._fetches)
        fetched = self.guarded(self._fetched)

        @functools.wraps(original)
        def watched(fetcher: Any, asked: Any) -> Any:
            if not self.watching:  # where steps are timed, nothing but a note
                if len(self._notes) < NOTES:
                    self._notes.append((id(fetcher.dataset), asked))
                return original(fetcher, asked)
            fetches(fetcher, asked)
            result = original(fetcher, asked)
            fetched(fetcher)
            return result

        self._always.attribute(owner, "fetch", watched)

    def _fetches(self, fetcher: Any, asked: Any) -> None:
        if get_worker_info() is not None or threading.get_ident() != self._thread:
            return
        found = self._of(fetcher.dataset)
        if found is None:
            return
        for _, batch in (each for each in self._notes if each[0] == id(fetcher.dataset)):
            found.before.again(batch)
        self._notes = [each for each in self._notes if each[0] != id(fetcher.dataset)]
        found.again = found.before.again(asked)
        found.containers = found.containers or WorkerContainers(fetcher)
        found.containers.begin()

    def _of(self, dataset: Any) -> _Watched | None:
        found = self._datasets.get(id(dataset))
        if found is not None and found.dataset() is dataset:
            return found
        for at in [at for at, each in self._datasets.items() if each.dataset() is None]:
            del self._datasets[at]
        if len(self._datasets) >= MOST or not hasattr(type(dataset), "__weakref__"):
            return None
        self._datasets[id(dataset)] = found = _Watched(dataset)
        return found

    def _fetched(self, fetcher: Any) -> None:
        found = self._datasets.get(id(fetcher.dataset))
        if found is not None and found.containers is not None:
            found.grown = list(found.containers.grown(found.again))

    def step_end(self) -> None:
        self._rows += ((at, row) for at, each in self._datasets.items() for row in each.grown)

    def stop(self) -> None:
        super().stop()
        newest = {_place(owner, row): row["beyond"] for owner, row in self._rows}
        add_grown(self.context, (each for each in self._rows if newest[_place(*each)]))
        self._rows = []
        for each in self._datasets.values():
            each.containers, each.grown = None, []


def _place(owner: int, row: dict[str, Any]) -> tuple[Any, ...]:
    return owner, row["module"], row["owner"], row["name"]
