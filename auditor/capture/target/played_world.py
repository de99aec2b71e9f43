"""The process as one rank of a world whose other ranks do not run (``audit run --world``).

On the null device NCCL needs no other process (``nccl.c`` there). What remains is what ranks tell
one another on the host: the store that they meet at, groups of gloo, and collectives of Python
objects. Every other rank is taken to have said what this one says.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.cuda import fake_group

PLAYED = "played"
"""Name of the backend that takes the place of gloo."""

UNSAID = bytes(128)
"""What a key holds that another rank would have set: as long as NCCL's id of a communicator."""


class PlayedStore(dist.Store):  # type: ignore[name-defined, misc]  # torch names no type
    """A store of one rank: it waits for no other rank, and unset values read as zeros."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, bytes] = {}

    def set(self, key: str, value: Any) -> None:
        """Keep it."""
        self._kept[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key: str) -> bytes:
        """What is kept, else :data:`UNSAID`."""
        return self._kept.get(key, UNSAID)

    def add(self, key: str, amount: int) -> int:
        """A counter that no other rank increments."""
        total = int(self._kept.get(key, b"0")) + amount
        self._kept[key] = str(total).encode()
        return total

    def check(self, keys: list[str]) -> bool:
        """Whether this rank has set all of them."""
        return all(key in self._kept for key in keys)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """The others have come."""

    def compare_set(self, key: str, expected: Any, wanted: Any) -> bytes:
        """As of torch's own stores."""
        kept = self._kept.get(key, b"")
        given = expected.encode() if isinstance(expected, str) else bytes(expected)
        if kept == given:
            self.set(key, wanted)
        return self._kept.get(key, given)

    def delete_key(self, key: str) -> bool:
        """Forget it."""
        return self._kept.pop(key, None) is not None

    def num_keys(self) -> int:
        """How many there are."""
        return len(self._kept)


class PlayedWorld:
    """Puts what needs other processes out of the program's way."""

    def __init__(self) -> None:
        self._patches = Patches()
        self._store = PlayedStore()  # C++ does not keep what Python answers with

    def install(self) -> None:
        """Before the program's first line."""
        c10d = dist.distributed_c10d
        self._patches.attribute(c10d, "rendezvous", self._rendezvous)
        self._without_gloo()
        objects = all_gather_object, gather_object, broadcast_object_list, scatter_object_list
        for each in (*objects, monitored_barrier):
            for owner in (c10d, dist):
                self._patches.attribute(owner, each.__name__, each)

    def uninstall(self) -> None:
        """Put all back."""
        self._patches.undo()

    def _without_gloo(self) -> None:
        """A group of gloo connects to all other ranks as it is made: one of torch's ``fake`` backend
        takes its place, under a name of its own. (DDP takes what is called gloo for the C++
        class.)
        """
        usual = dist.Backend.default_device_backend_map
        before = dict(usual)
        if not hasattr(dist.Backend, PLAYED.upper()):
            dist.Backend.register_backend(PLAYED, _fake, extended_api=True, devices=["cpu"])
        usual["cpu"] = PLAYED
        self._patches.on_undo(lambda: usual.update(before))
        for name in ("init_process_group", "new_group"):
            original = getattr(dist, name)
            named = _renamed(original, 0 if name == "init_process_group" else 2)
            for owner in (dist.distributed_c10d, dist, dist.device_mesh):
                if vars(owner).get(name) is original:
                    self._patches.attribute(owner, name, named)

    def _rendezvous(
        self, url: str, rank: int = -1, world_size: int = -1, **_: Any
    ) -> Iterator[tuple[PlayedStore, int, int]]:
        own = (rank, "RANK"), (world_size, "WORLD_SIZE")
        rank, world_size = (
            given if given >= 0 else int(os.environ[variable]) for given, variable in own
        )
        yield self._store, rank, world_size


def _fake(options: Any, backend_options: Any) -> Any:
    return fake_group(options.group_rank, options.group_size)


def _renamed(original: Callable[..., Any], place: int) -> Callable[..., Any]:
    """The function, whose argument ``backend`` (at ``place``) names no gloo."""

    @functools.wraps(original)
    def renamed(*args: Any, **kwargs: Any) -> Any:
        if len(args) > place and isinstance(args[place], str):
            args = (*args[:place], _no_gloo(args[place]), *args[place + 1 :])
        if isinstance(kwargs.get("backend"), str):
            kwargs["backend"] = _no_gloo(kwargs["backend"])
        return original(*args, **kwargs)

    return renamed


def _no_gloo(backend: str) -> str:
    return backend.lower().replace("gloo", PLAYED)


def all_gather_object(
    object_list: list[Any], obj: Any, group: Any = None, *_: Any, **__: Any
) -> None:
    """Each rank has this one's object."""
    object_list[:] = [obj] * len(object_list)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, *_: Any, **__: Any
) -> None:
    """The gathering rank gets this one's object from each rank."""
    if object_gather_list is not None:
        object_gather_list[:] = [obj] * len(object_gather_list)


def broadcast_object_list(object_list: list[Any], *_: Any, **__: Any) -> None:
    """The other rank's objects are those that this one holds."""


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    *_: Any,
    **__: Any,
) -> None:
    """What the rank itself would send, where it knows that; else what stands there."""
    if scatter_object_input_list:
        own = dist.get_rank() % len(scatter_object_input_list)
        scatter_object_output_list[0] = scatter_object_input_list[own]


def monitored_barrier(*_: Any, **__: Any) -> None:
    """All have come."""
