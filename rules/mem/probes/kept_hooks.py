"""Hooks that a line of the step registers on the same owner again and again, and nobody removes."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch.utils.hooks import RemovableHandle

from auditor.capture.probes.base import Context, Probe

from ..rows import KeptHookRow

MOST = 2_000
"""Hooks that are followed at a time."""


@dataclass(frozen=True)
class _Hook:
    """One registration. ``hooks`` refers weakly to the owner's dictionary that it is in."""

    at: int
    way: str
    owner: str
    hooks: Any
    number: int
    step: int

    @property
    def dictionary(self) -> int | None:
        """``id`` of the dictionary while the hook is in it."""
        hooks = self.hooks()
        return id(hooks) if hooks is not None and self.number in hooks else None


class KeptHooksProbe(Probe):
    """Writes ``kept_hooks``, when the pass is over. Every handle of a hook that torch makes in
    Python passes here; only those that the user's own lines register in a step are followed.
    """

    name = "kept_hooks"
    parts = ("kept_hooks",)
    passes = frozenset({"loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._hooks: list[_Hook] = []
        self._steps = 0

    def start(self) -> None:
        super().start()
        self._steps = 0
        self._patches.around(RemovableHandle, "__init__", after=self._registered)

    def step_end(self) -> None:
        """Forget hooks that are gone."""
        self._steps += 1
        self._hooks = [hook for hook in self._hooks if hook.dictionary is not None]

    def stop(self) -> None:
        super().stop()
        for row in self._rows():
            self.context.add(row)
        self._hooks.clear()

    def _registered(self, _: None, handle: RemovableHandle, *__: Any, **___: Any) -> None:
        if not self.context.in_step or len(self._hooks) >= MOST:
            return
        frames = self.context.frames
        registering = self._outwards(sys._getframe())  # the function of torch that does it
        caller = self._outwards(registering and registering.f_back)
        if registering is None or caller is None or not frames.is_user(caller.f_code.co_filename):
            return
        at = self.context.frames.here()
        if at is None:
            return
        owner = type(registering.f_locals.get("self")).__name__
        way = registering.f_code.co_name
        hooks = handle.hooks_dict_ref
        self._hooks.append(_Hook(at, way, owner, hooks, handle.id, self._steps))

    def _outwards(self, frame: FrameType | None) -> FrameType | None:
        """The first frame, from this one outwards, that is none of ours: other probes watch these
        functions too.
        """
        while frame is not None and self.context.frames.is_own(frame.f_code.co_filename):
            frame = frame.f_back
        return frame

    def _rows(self) -> list[KeptHookRow]:
        """Of each line the owner on which most of its hooks are."""
        held = [(hook, hook.dictionary) for hook in self._hooks]
        alive = Counter((hook.at, number) for hook, number in held if number is not None)
        rows: dict[int, KeptHookRow] = {}
        for (at, number), n in alive.most_common():
            if at in rows:
                continue
            own = [hook for hook, where in held if (hook.at, where) == (at, number)]
            rows[at] = KeptHookRow(
                at=at,
                way=own[0].way,
                owner=own[0].owner,
                n=n,
                added=len({hook.step for hook in own}),
                steps=self._steps,
            )
        return list(rows.values())
