"""Which lines of the user's a loader takes its time in, from stacks that were seen inside it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from auditor import amounts
from auditor.evidence.source.files import Source, lines_of
from auditor.evidence.table import Evidence, Table
from auditor.model import Site
from auditor.recordings.schema.data import FetchedRow, LoadingRow
from auditor.syntax.index import LOOPS

Phase = Literal["dataset", "collate", "sampler", "other"]

FURTHER = 2 / 3
"""Share of a line's time that one line of what it calls must take to be named in its place, where
it alone is less than the share asked for.
"""

DEAR = 0.2
"""Share of a function's time from which one of its lines is named beside the costliest."""

LEAST_LOOKS = 12
"""Looks at a loader from which a share is said: of 12, one more or less is 8 %."""

LEAST_LATE, LEAST_LATE_US = 5, 50_000.0
"""The same where C code kept the interpreter to itself: looks, and the us that they stand for. A
look that comes when such code returns stands for all of its time.
"""


@dataclass(frozen=True)
class Seen:
    """A stack inside the loading: the user's lines, outermost first; time in us, and looks."""

    at: tuple[Site, ...]
    phase: str
    us: float
    looks: int
    where: str = "step"
    via: str = ""


@dataclass(frozen=True)
class Fetched:
    """What worker processes of one loader took for ``batches`` of so many ``samples``, in us: without
    waiting for a processor, and of that on one.
    """

    batches: int
    samples: int
    us: float
    cpu_us: float

    @property
    def each_us(self) -> float:
        """Of a batch."""
        return self.us / max(1, self.batches)

    @property
    def cost(self) -> str:
        """Of a sample, in words; of a batch where the dataset is asked for whole ones."""
        what, number = ("sample", self.samples) if self.samples > self.batches else ("batch", 1)
        number = max(1, number if what == "sample" else self.batches)
        of = f"{amounts.duration(min(self.us, self.cpu_us) / number)} of it on a processor"
        return f"{amounts.duration(self.us / number)} for each {what}, {of}"


@dataclass(frozen=True)
class Costliest:
    """The line that the loading takes most of its time in, and its share. ``via`` is what it calls
    of a library; ``loop``: the line begins a loop, over whose lines the time is spread. ``loops``
    are those of the same function around it, outermost first. ``function``: the share is that of
    all of its lines, of which the site is the costliest. ``inside``: the costliest line of the loop, or
    the dear ones of the function. ``path``: lines of other functions that led to it, outermost first.
    """

    site: Site
    share: float
    phase: str
    via: str = ""
    loop: bool = False
    loops: tuple[Site, ...] = ()
    inside: tuple[Site, ...] = ()
    function: str = ""
    path: tuple[Site, ...] = ()


@dataclass(frozen=True)
class Loading(Table):
    """Stacks of the loud pass, by the number of the loader. Old recordings have none."""

    source: Source = field(default_factory=Source)
    seen: Mapping[int, tuple[Seen, ...]] = field(default_factory=dict)
    fetched: Mapping[int, Fetched] = field(default_factory=dict)

    @classmethod
    def build(cls, evidence: Evidence) -> Loading:
        """From the loud pass."""
        by_loader: defaultdict[int, list[Seen]] = defaultdict(list)
        for row in evidence.rows(LoadingRow) if evidence.has(LoadingRow.part) else ():
            sites = tuple(evidence.recording.site(number) for number in row.stack)
            by_loader[row.loader].append(
                Seen(sites, row.phase, row.us, row.n, row.where, row.via or "")
            )
        fetched = {
            row.loader: Fetched(row.n, row.samples, row.us, row.cpu_us)
            for row in (evidence.rows(FetchedRow) if evidence.has(FetchedRow.part) else ())
        }
        seen = {loader: tuple(each) for loader, each in by_loader.items()}
        return cls(evidence.get(Source), seen, fetched)

    def phase_share(self, loader: int, phase: Phase) -> float:
        """Share of the loading that one phase takes; 0 of too few looks."""
        counted = self._loading(loader)
        return _us(each for each in counted if each.phase == phase) / (_us(counted) or 1.0)

    def costliest(self, loader: int, share: float) -> Costliest | None:
        """The innermost line with at least this share of the loading time, or the innermost loop
        around lines that together have it, or the costliest line of a function that has it; None
        where it is spread, or too little was seen.
        """
        inside = self._loading(loader)
        total, found = _us(inside), None
        path: tuple[Site, ...] = ()
        for depth in range(max((len(each.at) for each in inside), default=0)):
            least = min(share * total, FURTHER * _us(inside) if found is not None else total)
            lines: dict[Site, list[Seen]] = {}
            for each in inside:
                if len(each.at) > depth:
                    lines.setdefault(each.at[depth], []).append(each)
            here = max(lines, key=lambda site: _us(lines[site]), default=None)
            if here is None:
                break
            if _us(lines[here]) < least:
                loop = self._loop(lines, least) or (found is None and _function(lines, least))
                if loop and found is not None:
                    path = (*path, found.site)
                named = replace(loop, share=loop.share / total) if loop else found
                return self._in_loops(named and replace(named, path=path))
            inside = lines[here]
            path = (*path, found.site) if found is not None else ()
            found = Costliest(here, _us(inside) / total, _most(inside).phase, path=path)
        return self._in_loops(found and replace(found, via=_called(inside, found.site)))

    def _in_loops(self, found: Costliest | None) -> Costliest | None:
        """With the lines at which the loops around it begin."""
        if found is None or found.site.file not in self.source.texts:
            return found
        site = found.site
        around = [
            replace(self.source.site_of(site.file, node), function=site.function)
            for node in _loops_around(list(self.source.nodes(site.file)), site.line)
        ]
        return replace(found, loops=tuple(sorted(around, key=lambda each: each.line)))

    def _loading(self, loader: int) -> Sequence[Seen]:
        """What counts as the loading: workers where there are any, unless the step's own thread is
        busy drawing indices for them. Empty of too few looks.
        """
        mine = self.seen.get(loader, ())
        step = [each for each in mine if each.where == "step"]
        drawing_us = _us(each for each in step if each.phase == "sampler")
        drawing = drawing_us > 0 and drawing_us >= 0.5 * _us(step)
        workers = [each for each in mine if each.where == "worker"]
        counted = step if drawing or not workers else workers
        looks = sum(each.looks for each in counted)
        late = looks >= LEAST_LATE and _us(counted) >= LEAST_LATE_US
        return counted if looks >= LEAST_LOOKS or late else ()

    def _loop(self, lines: Mapping[Site, list[Seen]], least: float) -> Costliest | None:
        """The innermost loop around lines of one function that take so many us: its ``share``."""
        best: tuple[int, Costliest] | None = None
        for file, function in dict.fromkeys((site.file, site.function) for site in lines):
            mine = [site for site in lines if (site.file, site.function) == (file, function)]
            for node in self.source.nodes(file) if file in self.source.texts else ():
                if not isinstance(node, LOOPS):
                    continue
                inside = [s for s in mine if s.line in lines_of(node)]
                us = sum(_us(lines[site]) for site in inside)
                if us >= least and (best is None or node.lineno > best[0]):
                    site = replace(self.source.site_of(file, node), function=function)
                    phase = _most(lines[inside[0]]).phase
                    most = max(inside, key=lambda each: _us(lines[each]))
                    best = node.lineno, Costliest(site, us, phase, loop=True, inside=(most,))
        return best[1] if best is not None else None


def _function(lines: Mapping[Site, list[Seen]], least: float) -> Costliest | None:
    """The costliest line of a function whose lines take so many us together: its ``share``."""
    by_function: defaultdict[tuple[str, str], list[Site]] = defaultdict(list)
    for site in lines:
        by_function[site.file, site.function].append(site)
    for (_, function), mine in by_function.items():
        us = sum(_us(lines[site]) for site in mine)
        if function and us >= least:
            most = max(mine, key=lambda site: _us(lines[site]))
            dear = tuple(site for site in mine if site != most and _us(lines[site]) >= DEAR * us)
            phase = _most(lines[most]).phase
            return Costliest(most, us, phase, inside=dear, function=function)
    return None


def _loops_around(nodes: Sequence[ast.AST], line: int) -> list[ast.For | ast.AsyncFor | ast.While]:
    """Loops of the innermost function around the line in which it lies, below their own line."""

    def around(node: ast.stmt) -> bool:
        return line in lines_of(node)[1:]

    functions = [
        node.lineno
        for node in nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and around(node)
    ]
    begins = max(functions, default=0)
    return [
        node for node in nodes if isinstance(node, LOOPS) and around(node) and node.lineno > begins
    ]


def _us(seen: Iterable[Seen]) -> float:
    return sum(each.us for each in seen)


def _most(seen: Sequence[Seen]) -> Seen:
    return max(seen, key=lambda each: each.us)


def _called(seen: Sequence[Seen], site: Site) -> str:
    """What of a library the line calls, where most of its time is in that."""
    by_name: defaultdict[str, float] = defaultdict(float)
    for each in seen:
        if each.at[-1] == site:
            by_name[each.via] += each.us
    name = max(by_name, key=lambda via: by_name[via], default="")
    return name if name and by_name[name] >= 0.5 * _us(seen) else ""
