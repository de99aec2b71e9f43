"""The runs: two as the program is, and where these differ, pairs in which one thing is held. Or one
of the program as it is and one of a commit.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from auditor.errors import AuditProblem, TargetFailed, TargetProblem
from auditor.extensions.reproduce.comparing import (
    BEYOND_ALL,
    Difference,
    Log,
    difference,
    difference_of_versions,
    seeded_otherwise,
    suspects,
)
from auditor.git import git
from auditor.recordings.folder import Recording
from auditor.runs import child_process
from auditor.runs.finalize import raised
from auditor.runs.plan import Device, Plan
from auditor.runs.progress import Progress
from auditor.runs.project_copy import NOTHING, sheltered
from auditor.runs.repeat import HELD, Repeat
from auditor.runs.target import parse

PARTS = ("reproduce",)

HASH_SEED = "PYTHONHASHSEED"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Order:
    """What to compare. ``steps`` of the target; ``deadline`` by ``time.monotonic``; ``against`` is
    the commit whose project the other run has, empty for the same program twice.
    """

    target: str
    args: tuple[str, ...]
    steps: int
    device: Device
    deadline: float | None = None
    against: str = ""

    @property
    def offset(self) -> int:
        """The target's number of the first recorded step: of a script, the first one ends before
        its steps are known, and counts as before the steps.
        """
        return 1 if parse(self.target).kind == "script" else 0


@dataclass(frozen=True)
class Outcome:
    """Two runs, where they part, and which of :data:`HELD` make the operator there agree when they
    are held (empty: none do, or they do not part). ``kept`` is the last pair with something held;
    with a cause and without one, ``other`` is a run with another clock.
    """

    one: Log
    other: Log
    found: Difference | None
    causes: tuple[str, ...]
    suspected: tuple[str, ...]
    kept: tuple[Log, Log] | None
    runs: int
    warnings: tuple[str, ...]
    steps: int
    first_step: int
    against: str = ""


class Runs:
    """Makes them; each in a fresh copy of the working directory."""

    def __init__(self, order: Order, say: Say, progress: Progress) -> None:
        self._order = order
        self._say = say
        self._progress = progress
        self._made = 0
        self._warnings: dict[str, None] = {}
        self._last: tuple[Log, Log] | None = None
        self._tried: dict[tuple[str, ...], Difference | None] = {}
        """Where runs with these held part."""

    def outcome(self) -> Outcome:
        """Raises :class:`AuditProblem` for ours, :class:`TargetFailed` for the target's."""
        if self._order.against:
            return self._outcome(*self._versions())
        one, other = self._pair("running it twice", ())
        self._require_outcomes(one)
        found = difference(one, other)
        if found is not None:
            suspected = suspects(one, other, found)
            causes = self._causes(found, suspected)
            if len(causes) == 1 and seeded_otherwise(one, other, *causes) is not None:
                # what gave a generator another seed, if that can be held
                names = [each for each in ("clock", "system") if each in suspected]
                name = self._cause_among(names if _hash_seed_is_set() else [*names, "hash"], found)
                causes = ((name,) if name else ()) or causes
            return self._outcome(one, other, found, causes, suspected)
        if one.drawn_before("clock", BEYOND_ALL):  # watched runs are slow, and may be so alike
            self._say("once more with another clock")
            another = self._run(Repeat(("clock",)), "1")
            if (found := difference(one, another)) is not None:
                return self._outcome(one, another, found, ("clock",), ("clock",))
        return self._outcome(one, other, None)

    def _outcome(
        self,
        one: Log,
        other: Log,
        found: Difference | None,
        causes: tuple[str, ...] = (),
        suspected: Sequence[str] = (),
    ) -> Outcome:
        steps = sum(row["steps"] for row in one.manifest["passes"]) + self._order.offset
        return Outcome(
            one,
            other,
            found,
            causes,
            tuple(suspected),
            self._last,
            self._made,
            tuple(self._warnings),
            steps,
            self._order.offset,
            self._order.against,
        )

    def _require_outcomes(self, log: Log) -> None:
        if not log.outcomes:
            raise TargetProblem(
                f"{self._order.target} ran no backward and no optimizer: there is no result to "
                "compare"
            )

    def _versions(self) -> tuple[Log, Log, Difference | None]:
        """A run of the project as it is and one of the commit, with all held that can be; where they
        part, each once more, since a version that differs from itself cannot be compared.
        """
        against, order = self._order.against, self._order
        files, said = files_of(against, str(Path.cwd()))
        if said:
            self._warnings[said] = None
        versions = {"the working directory": NOTHING, against: files}
        logs: list[Log] = []
        for name, each in versions.items():
            self._say(f"running {name}")
            logs.append(self._run(Repeat(HELD), "0", each))
            self._require_outcomes(logs[-1])
        one, other = logs
        found = difference_of_versions(one, other)
        if found is None:
            return one, other, None
        for (name, each), before in zip(versions.items(), logs, strict=True):
            self._say(f"running {name} once more")
            if difference(before, self._run(Repeat(HELD), "0", each)) is not None:
                raise TargetProblem(
                    f"{name} differs from itself, even with generators, hash seed and clock held: "
                    "no other version can be compared with it",
                    f"run `audit reproduce {order.target}` there first",
                )
        return one, other, found

    def _causes(self, found: Difference, suspected: list[str]) -> tuple[str, ...]:
        """Each suspect is held alone; if none makes it agree, all at once, then one by one."""
        can = [name for name in HELD if name != "hash" or not _hash_seed_is_set()]
        if name := self._cause_among(suspected, found):
            return (name,)
        if not _is_later(self._again(found, tuple(can)), found):
            return ()
        others = [each for each in reversed(can) if each not in suspected]
        name = self._cause_among(others, found)
        return (name,) if name else tuple(suspected or can)

    def _cause_among(self, names: Iterable[str], found: Difference) -> str:
        """The first cause that makes both runs equal to the end when it is held; else the first
        with which the operator agrees (by chance, or because something else differs later). Empty
        if neither exists.
        """
        here = ""
        for name in names:
            again = self._again(found, (name,))
            if again is None:
                return name
            if not here and _is_later(again, found):
                here = name
        return here

    def _again(self, found: Difference, held: tuple[str, ...]) -> Difference | None:
        if held not in self._tried:
            self._last = self._pair(f"twice with {', '.join(held)} held", held, found.number)
            self._tried[held] = difference(*self._last)
        return self._tried[held]

    def _pair(self, what: str, held: tuple[str, ...], keep: int = -1) -> tuple[Log, Log]:
        self._say(what)
        seeds = ("0", "0") if "hash" in held else ("1", "2")
        logs = [self._run(Repeat(held, -1 if keep == BEYOND_ALL else keep), seed) for seed in seeds]
        return logs[0], logs[1]

    def _run(
        self, repeat: Repeat, hash_seed: str, files: Mapping[str, bytes | None] = NOTHING
    ) -> Log:
        order = self._order
        variables = {} if _hash_seed_is_set() else {HASH_SEED: hash_seed}
        steps = max(1, order.steps - order.offset)
        with tempfile.TemporaryDirectory(prefix="audit-reproduce-") as folder:
            plan = Plan(
                order.target,
                order.args,
                steps,
                0,
                order.device,
                str(Path(folder).resolve() / "recording"),
                PARTS,
                purpose=repeat,
                variables=variables,
            )
            with sheltered(plan, files) as apart:
                recording = child_process.record_once(
                    apart, order.deadline, self._progress, lambda text: None
                )
                log = Log(recording, blames=not self._made)
                self._made += 1
        self._require(recording)
        return log

    def _require(self, recording: Recording) -> None:
        manifest = recording.manifest
        self._warnings.update(dict.fromkeys(manifest.get("warnings", ())))
        outcome = manifest["outcome"]
        if outcome == "interrupted":
            raise KeyboardInterrupt
        if outcome != "completed":
            said = raised(manifest)[0].rstrip(": ")[:200]
            raise TargetFailed(
                f"the target ended in run {self._made} with {said}"
                if outcome != "timeout"
                else f"the time given ran out in run {self._made}"
            )
        failed = manifest.get("probes", {}).get("reproduce")
        if failed is not None:
            raise AuditProblem(f"the watch over operators failed: {failed['error']}")


def _is_later(again: Difference | None, found: Difference) -> bool:
    return again is None or (again.number > found.number and again.site != found.site)


def _hash_seed_is_set() -> bool:
    return os.environ.get(HASH_SEED, "random") != "random"


# -- the project as it was in a commit -------------------------------------------------------------


def files_of(revision: str, folder: str) -> tuple[dict[str, bytes | None], str]:
    """The files of ``folder`` that git follows and that were otherwise in this commit, by their paths
    below it: as they were there, None if there was none. And a sentence on what lies outside of
    ``folder`` and is taken as it is now; empty if nothing does.

    Raises :class:`AuditProblem` if there is no such commit, or nothing has changed since.
    """
    named = None if revision.startswith("-") else git(folder, "rev-parse", f"{revision}^{{commit}}")
    if not named:
        where = "" if git(folder, "rev-parse", "--git-dir") else " (it is in no git repository)"
        raise AuditProblem(
            f"--against {revision}: git knows no such commit here{where}",
            "name a commit, a branch or a tag: --against HEAD~1",
        )
    commit = named.decode().strip()
    changed = _changed(folder, commit, "--relative")
    elsewhere = len(_changed(folder, commit)) - len(changed)
    if not changed:
        raise AuditProblem(
            f"--against {revision}: no file of this directory has changed since",
            "name an earlier commit: --against HEAD~1",
        )
    files = {
        path: None if status == "A" else _git(folder, "cat-file", "blob", f"{commit}:./{path}")
        for path, status in changed.items()
    }
    many = f"{elsewhere:,} file{'s' * (elsewhere != 1)}"
    said = f"{many} outside of this directory changed as well, and are taken as they are now"
    return files, said if elsewhere else ""


def _changed(folder: str, commit: str, *options: str) -> dict[str, str]:
    """Git's letter for what became of each file since."""
    words = ("diff", "--name-status", "-z", "--no-renames", "--no-ext-diff")
    told = _git(folder, *words, "--ignore-submodules=all", *options, commit, "--").split(b"\0")
    pairs = zip(told[::2], told[1::2], strict=False)  # an empty one ends them
    return {os.fsdecode(path): os.fsdecode(status) for status, path in pairs}


def _git(folder: str, *words: str) -> bytes:
    """Raises :class:`AuditProblem` if git refuses, or takes too long."""
    told = git(folder, *words)
    if told is None:
        raise AuditProblem(f"git {words[0]} failed in {folder}, or took too long", "try it there")
    return told
