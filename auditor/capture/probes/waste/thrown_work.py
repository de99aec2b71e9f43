"""Unread results: in a few steps, each operator is followed to the readers of its result."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import FrameType, GeneratorType
from typing import Any

import torch

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.module_stack import live_modules
from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.instruments.storages import storage_key
from auditor.capture.instruments.torch_private.training import own_buffers, own_parameters
from auditor.capture.instruments.user_frames import OWN
from auditor.capture.probes.base import Context
from auditor.capture.probes.data.dataloader_facts import tensors_in
from auditor.capture.probes.numerics.nonfinite import homes_of
from auditor.capture.probes.operator_stream import OperatorProbe
from auditor.capture.probes.optim.optimizer_hooks import OptimizerSteps, live_optimizers, tensors_of
from auditor.capture.probes.sync.reads import StandIn
from auditor.capture.probes.waste.flow import (
    CONSTANT,
    FILLS,
    MOST_NODES,
    WEIGHTS,
    Flow,
    FlowWatch,
    Node,
    Path,
    Value,
    behind,
)
from auditor.cycles import period_of
from auditor.recordings.schema.graph import ThrownRow

FEWEST = 2
"""Steps on which something must have been for nothing; on the last one it may still be needed."""

MOSTLY = 0.9
"""Of the work below a line, so much must be repeated for the line to be."""

NAMED = 5

Pick = Callable[[Node], bool]


@dataclass(eq=False)
class Gradient:
    """What a parameter's gradient held after a backward."""

    call: int
    step: int
    path: Path
    optimizer: str
    parameter: int
    value: Value
    stepped: int
    """Steps of optimizers before it in the pass."""


@dataclass
class _Below:
    """What ran below a line in one step."""

    operators: int = 0
    picked: int = 0
    work: int = 0
    of_picked: int = 0


@dataclass(eq=False)
class _WastedLine:
    """A line below which all is for nothing, and what ran there."""

    prefix: Path
    nodes: list[Node] = field(default_factory=list)


class Judging:
    """What is said about one pass of ``steps`` steps."""

    def __init__(self, flow: Flow, gradients: list[Gradient], steps: int) -> None:
        self._flow = flow
        self._gradients = gradients
        self._steps = steps
        self._last = steps - 1
        sinks = flow.sinks()
        self._read, self._surely_read = (
            behind(flow.roots(until=until, stored=False), sinks) for until in (steps, self._last)
        )
        self._live, self._surely = (
            behind(flow.roots(until=until, stored=True), sinks) for until in (steps, self._last)
        )
        gone = flow.roots(until=-1, stored=False)  # without a reader that was seen
        left = {each.value for each in gradients}.difference(gone)
        roots = (each for each in flow.roots(until=steps, stored=False) if each not in left)
        self._used = behind(roots, sinks).values
        self._work = sum(node.work for node in flow.nodes) or 1

    def rows(self, names: dict[int, str]) -> Iterator[ThrownRow]:
        """All rows but the one about the whole; ``names`` of parameters by ``id``."""
        yield from self._cleared(names)
        repeats = list(self._repeats())
        if not self._flow.threads:
            yield from self._unread({node for place, _ in repeats for node in place.nodes})
            yield from self._copies()
        yield from self._constants()
        yield from (row for _, row in repeats)

    # -- gradients ---------------------------------------------------------------------------------

    def _cleared(self, names: dict[int, str]) -> Iterator[ThrownRow]:
        groups: dict[tuple[Path, str], list[Gradient]] = defaultdict(list)
        for each in self._gradients:
            if each.path:
                groups[each.path, each.optimizer].append(each)
        for (path, optimizer), group in groups.items():
            dead = self._always_dead(group)
            if not dead:
                yield from self._windows(path[-1], optimizer, group)
                continue
            parameters = list(dict.fromkeys(each.parameter for each in dead))
            steps = len({each.step for each in dead})
            times = self._times(steps)
            nodes, work = self._cost(dead)
            end = self._end_of_graph(dead)
            row = ThrownRow(
                what="gradient" if end is None else "detach",
                at=path[-1] if end is None else end,
                other=None if end is None else path[-1],
                steps=steps,
                operators=len([node for node in nodes if node.backward is not None]) / times,
                share=work / times * self._steps / self._work,
                owner=optimizer.partition(" ")[0],
                names=[names.get(number, "") for number in parameters[:NAMED]],
                n=len(parameters),
            )
            yield row

    def _always_dead(self, group: list[Gradient]) -> list[Gradient]:
        """Parameters whose gradients of this backward were never read; not the pass's last one."""
        spared = {each.parameter for each in group if each.value in self._used}
        dead = [
            each
            for each in group
            if each.parameter not in spared
            and each.step < self._last
            and each.value not in self._read.values
        ]
        return dead if len({each.step for each in dead}) >= FEWEST else []

    def _windows(self, at: int, optimizer: str, group: list[Gradient]) -> Iterator[ThrownRow]:
        """Backwards of one line before a step of an optimizer, of which only the last left gradients
        that were read: what the others left was cleared.
        """
        windows: dict[int, dict[int, bool]] = defaultdict(dict)
        for each in (each for each in group if each.step < self._last):
            read = each.value in self._read.values or each.value in self._used
            calls = windows[each.stepped]
            calls[each.call] = calls.get(each.call, False) or read
        in_order = [[read for _, read in sorted(calls.items())] for calls in windows.values()]
        if len(in_order) >= FEWEST and all(
            len(each) > 1 and each[-1] and not any(each[:-1]) for each in in_order
        ):
            row = ThrownRow(what="window", at=at, n=len(in_order[0]))
            row.steps = len({each.step for each in group if each.step < self._last})
            row.owner = optimizer.partition(" ")[0]
            yield row

    def _cost(self, dead: list[Gradient]) -> tuple[set[Node], float]:
        """The calls that only these gradients needed, and their work: half of what made more."""
        calls = {each.call for each in dead}
        reached = behind(each.value for each in dead)
        idle = {node for node in reached.nodes if node not in self._read.nodes}
        shared = {
            value.node
            for value in reached.values
            if value.node is not None
            and value.node.backward in calls
            and value.node in self._read.nodes
            and value not in self._read.values
        }
        work = sum(node.work for node in idle if node.backward in calls)
        return idle, work + sum(node.work for node in shared) / 2

    def _end_of_graph(self, dead: list[Gradient]) -> int | None:
        """Where a ``detach()`` belongs: the line that hands what these parameters made to what the
        backward was for; None where the gradient goes through them.
        """
        first = dead[0]
        ran = [node for node in self._flow.nodes if node.backward == first.call]
        needed = {node.forward for node in ran if node in self._read.nodes}
        forward: dict[int, list[Node]] = defaultdict(list)
        for node in self._flow.nodes:
            if node.step == first.step and node.backward is None and node.forward is not None:
                forward[node.forward].append(node)
        wasted = {
            node.forward for node in ran if node.forward in forward and node.forward not in needed
        }
        for each in dead:
            if each.call == first.call and not _origins(each.value, forward) <= wasted:
                return None
        idle = {node for number in wasted if number is not None for node in forward[number]}
        lines = {node.path[:depth] for node in idle for depth in range(1, len(node.path) + 1)}
        for node in self._flow.nodes:
            if (
                node.step == first.step
                and node.forward in needed
                and node.backward is None
                and node not in idle
                and any(value.node in idle for value in node.inputs)
            ):
                own = (node.path[:depth] for depth in range(1, len(node.path) + 1))
                outside = next((each for each in own if each not in lines), None)
                if outside is not None:
                    return outside[-1]
        return None

    # -- results -----------------------------------------------------------------------------------

    def _unread(self, told: set[Node]) -> Iterator[ThrownRow]:
        """Forwards whose results reach nothing, without those that are told as repeated."""
        idle = behind(
            (),
            (
                each
                for each in self._flow.nodes
                if (each.backward is not None and self._dead(each)) or self._idle_copy(each)
            ),
        ).nodes

        def dead(node: Node) -> bool:
            filled = node.replaced and node.op in FILLS
            return self._dead(node) and node not in idle and not (node.copied or filled)

        places = self._places(dead, finer=True)
        live = [node for node in self._flow.nodes if node.backward is None and not dead(node)]
        for group in _joined([place for place in places if told.isdisjoint(place.nodes)]):
            row = self._row("result", group)
            heaviest = next(place for place in group if place.prefix[-1] == row.at)
            row.at = _unlike(heaviest, live)
            ran_at = {node.path[-1] for node in heaviest.nodes if node.op == row.op}
            if len(ran_at) == 1 and row.at not in ran_at:
                row.other = ran_at.pop()
            yield row

    def _idle_copy(self, node: Node) -> bool:
        reached = self._read if node.step < self._last else self._surely_read
        return bool(node.copied) and node not in reached.nodes

    def _dead(self, node: Node) -> bool:
        """Its result was not read; of the last step, surely never will be."""
        reached = self._live if node.step < self._last else self._surely
        return node not in reached.nodes

    def _copies(self) -> Iterator[ThrownRow]:
        groups: dict[tuple[Path, str, int], list[Node]] = defaultdict(list)
        turns = Counter[tuple[int, Path, str]]()
        for node in self._flow.nodes:
            if node.copied and node.path:
                turn = turns[node.step, node.path, node.copied]
                turns[node.step, node.path, node.copied] += 1
                groups[node.path, node.copied, turn].append(node)
        for (path, said, _), nodes in groups.items():
            judged = [node for node in nodes if node.step < self._last]
            steps = len({node.step for node in judged})
            times = self._times(steps)
            if steps >= FEWEST and all(self._idle_copy(node) for node in nodes):
                yield ThrownRow(
                    what="copy",
                    at=path[-1],
                    steps=steps,
                    operators=len(judged) / times,
                    nbytes=sum(node.nbytes for node in judged) // times,
                    op=said,
                    share=sum(node.work for node in judged) / times * self._steps / self._work,
                )

    # -- again and again ---------------------------------------------------------------------------

    def _constants(self) -> Iterator[ThrownRow]:
        told = set[Node]()
        for most in (WEIGHTS, CONSTANT):
            fixed = {node for node in self._flow.nodes if 0 < node.fixed <= most}
            for group in _joined(self._places(fixed.__contains__, judged=self._steps)):
                nodes = [node for place in group for node in place.nodes]
                by_step = [
                    sorted(node.recipe for node in nodes if node.step == step)
                    for step in range(self._steps)
                ]
                same = all(each == by_step[0] for each in by_step[1:])
                spoiled = any(node.spoiled or node.copied for node in nodes)
                # frozen weights that are cast or unpacked on each step save memory: no network runs
                runs = most < WEIGHTS or any(node.product for node in nodes)
                if same and not spoiled and runs and told.isdisjoint(nodes):
                    told.update(nodes)
                    yield self._row("constant", group)

    def _repeats(self) -> Iterator[tuple[_WastedLine, ThrownRow]]:
        """What was computed before in the same step, of the same operands, and is used."""
        into_training = behind(
            each.value for _, each, there in self._flow.held.items() if there
        ).nodes

        def again(node: Node) -> bool:
            return node.repeats is not None

        for place in self._places(again, mostly=MOSTLY):
            if self._live.nodes.isdisjoint(place.nodes):
                continue
            nodes = [node for node in place.nodes if node.repeats is not None]
            firsts = [node.repeats for node in nodes if node.repeats is not None]
            depth = len(place.prefix)
            if any(each.path[:depth] == place.prefix for each in firsts):
                continue  # a loop: its turns are given the same by chance
            at, other = _apart(place.prefix, _common(each.path for each in firsts))
            if other is not None and self._goes_on_otherwise(nodes, at, firsts, other):
                continue
            if any(each.graph for each in nodes) and not any(each.graph for each in firsts):
                if other is None or any(each in into_training for each in firsts):
                    continue  # computed once without a graph, and again with it: on purpose
                at, other = other, at
            # a backward between them has freed the first graph
            freed = any(
                node.graph and first.graph and node.after != first.after
                for node, first in zip(nodes, firsts, strict=True)
            )
            row = self._row("again" if freed else "repeat", [place])
            row.at, row.other = at, other
            yield place, row

    def _goes_on_otherwise(
        self, nodes: list[Node], at: int, firsts: list[Node], other: int
    ) -> bool:
        """Two calls begin alike, and most of what they run then is not the same: a model that is
        evaluated and then trained on the same input. One without the other would not do.
        """
        mine, theirs = self._below(nodes[0], at), self._below(firsts[0], other)
        repeated = sum(node.work for node in set(nodes).intersection(mine))
        return repeated < MOSTLY * sum(node.work for node in mine) and (
            Counter(node.op for node in mine) != Counter(node.op for node in theirs)
        )

    def _below(self, node: Node, line: int) -> list[Node]:
        """What the same expression of this line ran in the same step."""
        depth = node.path.index(line) + 1
        return [
            each
            for each in self._flow.nodes
            if each.step == node.step
            and each.backward is None
            and each.spots[:depth] == node.spots[:depth]
        ]

    # -- places ------------------------------------------------------------------------------------

    def _places(
        self, pick: Pick, *, judged: int = 0, mostly: float = 1.0, finer: bool = False
    ) -> list[_WastedLine]:
        """The outermost lines below which every operator is picked on every step that has them, on
        ``judged`` steps at least; with ``finer`` also an expression of a line whose others are not,
        if a product is below it.
        """
        judged = judged or FEWEST
        nodes = [node for node in self._flow.nodes if node.backward is None and node.path]
        picked = {node for node in nodes if pick(node) and not node.compiled}
        places = self._outermost(nodes, picked, lambda node: node.path, judged, mostly)
        if finer:
            covered = {node for place in places for node in place.nodes}
            places += [
                place
                for place in self._outermost(nodes, picked, lambda node: node.spots, judged, mostly)
                if any(node.product for node in place.nodes) and covered.isdisjoint(place.nodes)
            ]
        return places

    def _outermost(
        self,
        nodes: list[Node],
        picked: set[Node],
        stack: Callable[[Node], tuple[Any, ...]],
        judged: int,
        mostly: float,
    ) -> list[_WastedLine]:
        below: dict[tuple[Any, ...], dict[int, _Below]] = defaultdict(dict)
        for node in nodes:
            own = stack(node)
            for depth in range(1, len(own) + 1):
                here = below[own[:depth]].setdefault(node.step, _Below())
                here.operators += 1
                here.work += node.work
                here.picked += node in picked
                here.of_picked += node.work if node in picked else 0
        found = set[tuple[Any, ...]]()
        for prefix, steps in below.items():
            needed = [each for step, each in steps.items() if step < self._last or judged > FEWEST]
            if len(needed) >= judged and all(_all(each, mostly) for each in steps.values()):
                found.add(prefix)
        places: dict[tuple[Any, ...], _WastedLine] = {}
        for node in nodes:
            own = stack(node)
            for depth in range(1, len(own) + 1):
                if own[:depth] in found:
                    place = places.setdefault(own[:depth], _WastedLine(node.path[:depth]))
                    place.nodes.append(node)
                    break
        return list(places.values())

    def _row(self, what: str, group: list[_WastedLine]) -> ThrownRow:
        works = [sum(node.work for node in place.nodes) for place in group]
        heaviest = group[works.index(max(works))]
        if what == "constant":
            heaviest = min(group, key=lambda place: place.nodes[0].number)
        nodes = [node for place in group for node in place.nodes]
        steps = len({node.step for node in nodes})
        times = self._times(steps)
        lines = dict.fromkeys(place.prefix[-1] for place in group if place is not heaviest)
        lines.pop(heaviest.prefix[-1], None)
        largest = max(heaviest.nodes, key=lambda node: node.work)
        return ThrownRow(
            what=what,
            at=heaviest.prefix[-1],
            lines=list(lines),
            steps=steps,
            operators=len([node for node in nodes if not node.op.startswith("empty")]) / times,
            share=sum(works) / times * self._steps / self._work,
            nbytes=sum(node.nbytes for node in nodes) // times,
            op=largest.op,
            products=sum(node.product for node in nodes) // steps,
        )

    def _times(self, steps: int) -> int:
        """By all judged steps but the last, which are whole periods where steps alternate."""
        return max(steps, self._last)


def _all(below: _Below, mostly: float) -> bool:
    if mostly >= 1.0:
        return below.picked == below.operators
    return below.of_picked >= mostly * below.work


def _origins(value: Value, forward: dict[int, list[Node]]) -> set[int | None]:
    """Of which nodes of the graph a gradient came; accumulating has none."""
    waiting, found, seen = [value.node], set[int | None](), set[Node]()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen or node.backward is None:
            continue
        seen.add(node)
        if node.forward in forward:
            found.add(node.forward)
        else:
            waiting.extend(each.node for each in node.inputs)
    return found


def _joined(places: list[_WastedLine]) -> Iterator[list[_WastedLine]]:
    """Places of which one reads what another made, together."""
    home = {node: number for number, place in enumerate(places) for node in place.nodes}
    leader = list(range(len(places)))

    def top(number: int) -> int:
        while leader[number] != number:
            number = leader[number]
        return number

    for node, number in home.items():
        for value in node.inputs:
            if value.node in home:
                leader[top(home[value.node])] = top(number)
    groups: dict[int, list[_WastedLine]] = defaultdict(list)
    by_line: dict[int, int] = {}
    for number, place in enumerate(places):
        line = by_line.setdefault(place.prefix[-1], number)
        leader[top(number)] = top(line)
    for number, place in enumerate(places):
        groups[top(number)].append(place)
    yield from groups.values()


def _common(paths: Iterable[Path]) -> Path:
    """The lines from the outermost in that all of them have."""
    shared: Path | None = None
    for path in paths:
        if shared is None:
            shared = path
        depth = 0
        while depth < min(len(shared), len(path)) and shared[depth] == path[depth]:
            depth += 1
        shared = shared[:depth]
    return shared or ()


def _unlike(place: _WastedLine, live: list[Node]) -> int:
    """The innermost line of a place that is called otherwise where results are read."""
    depth = len(place.prefix)
    same = {node.spots[depth - 1] for node in place.nodes}
    used = {line for node in live if not same.isdisjoint(node.spots) for line in node.path}
    return next((line for line in reversed(place.prefix) if line not in used), place.prefix[-1])


def _apart(one: Path, other: Path) -> tuple[int, int | None]:
    """The innermost line of each that the other does not run through."""
    mine = next((line for line in reversed(one) if line not in other), one[-1])
    theirs = next(
        (line for line in reversed(other) if line not in one), other[-1] if other else None
    )
    return mine, theirs


ADDRESSES = ("numpy", "data_ptr", "share_memory_", "untyped_storage", "__dlpack__")
"""Methods that hand out a tensor's memory: later reads are not seen."""

READS = ("tolist", "__deepcopy__", "__reduce_ex__")
"""Methods that read it past torch's operators."""

MOST_PERIOD = 5
"""Steps after which those that alternate must come again: a critic is trained five times as often as
its generator (Arjovsky et al. 2017, Wasserstein GAN, algorithm 1).
"""

REMEMBERED = 24
"""Steps of which it is known which optimizers stepped: two periods and what was irregular before."""

RETURNED = 1000
"""Tensors that are looked for in what the target returns."""


class ThrownWorkProbe(OperatorProbe):
    """Writes ``thrown`` when its pass is over."""

    name = "thrown"
    passes = frozenset({"numbers"})
    in_rehearsals = True
    unseen = "the flow of some values was not seen"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watch: FlowWatch | None = None
        self._gradients: list[Gradient] = []
        self._owners: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self._calls = 0
        self._open = 0
        self._steps = 0
        self._stepped = 0
        self._stepping: dict[int, set[int]] = {}
        self._kinds: list[frozenset[Path]] = []
        self._known = 0
        self._told = OptimizerSteps(after=self.guarded(self._optimizer_stepped))

    def install(self) -> None:
        self._always.on_undo(self._told.uninstall)
        self._told.install()

    def watch(self) -> None:
        self._gradients, self._calls, self._open, self._steps = [], 0, 0, 0
        self._stepped = 0
        self._kinds, self._known = [], 0
        self._owners = {
            id(each): (weakref.ref(each), f"{type(optimizer).__name__} {number}")
            for number, optimizer in enumerate(live_optimizers())
            for each in tensors_of(optimizer)
        }
        buffers, frozen = list[Any](), list[Any]()
        for module in live_modules():
            buffers += own_buffers(module).values()
            frozen += own_parameters(module).values()
        self._watch = FlowWatch(self.context, self.missed)
        self._watch.fix(CONSTANT, buffers)
        self._watch.fix(
            WEIGHTS,
            [each for each in frozen if id(each) not in self._owners or not each.requires_grad],
        )
        for name in (*ADDRESSES, *READS):
            original = getattr(torch.Tensor, name, None)
            if original is not None:
                call = self._taking(original, address=name in ADDRESSES)
                self._patches.attribute(torch.Tensor, name, StandIn(original, call))
        self._look_for_threads()  # what the program's own threads read is not seen
        for owner, name in ((threading.Thread, "start"), (ThreadPoolExecutor, "submit")):
            self._patches.attribute(owner, name, self._starting(getattr(owner, name)))
        self.watch_backward(self._patches)
        self.enter(self._watch)

    def _optimizer_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self._stepped += 1
        step = self.context.global_step
        self._stepping.setdefault(step, set()).add(id(optimizer))
        self._stepping.pop(step - REMEMBERED, None)

    def wants_more(self) -> bool:
        """Steps alternate, and not every kind came three times: the last may still be needed."""
        watch, last = self._watch, self.context.global_step
        if watch is None or watch.blind or not self._steps:
            return False
        if len(watch.flow.nodes) / self._steps * (self._steps + 1) >= MOST_NODES:
            return False
        stepping = [
            self._stepping.get(step) for step in range(max(0, last + 1 - REMEMBERED), last + 1)
        ]
        alternate = period_of(stepping, MOST_PERIOD) or 1
        period = period_of(self._kinds, MOST_PERIOD) or MOST_PERIOD
        return self._steps <= 2 * max(alternate, period)

    def step_gave(self, returned: Any) -> None:
        """That is its caller's to read."""
        if self._watch is not None:
            for tensor in tensors_in(returned, RETURNED):
                self._watch.escape(tensor, address=False)

    def step_end(self) -> None:
        """A value that outlives the step elsewhere than in a variable is kept on purpose."""
        self._steps += 1
        watch = self._watch
        self._look_for_threads()
        if watch is not None:
            nodes = watch.flow.nodes
            self._kinds.append(frozenset(node.path for node in nodes[self._known :]))
            self._known = len(nodes)
            local = {storage_key(each) for each in self._locals()}
            for key, value in watch.flow.survivors(self.context.step):
                if key not in local:
                    watch.flow.stored.append(value)

    def _locals(self) -> Iterator[torch.Tensor]:
        """Tensors in variables of the functions that run, or wait in a ``yield``."""
        held = self.context.target  # a script's is its module, which may have any names
        if isinstance(held, functools.partial):
            held = held.args[0] if held.args else None
        waiting = held.gi_frame if isinstance(held, GeneratorType) else None
        frame: FrameType | None = sys._getframe(1) if waiting is None else waiting
        while frame is not None:
            if self.context.frames.is_user(frame.f_code.co_filename):
                for value in tuple(frame.f_locals.values()):
                    yield from tensors((value,) if not isinstance(value, (dict, list)) else ())
            frame = frame.f_back

    def stop(self) -> None:
        super().stop()
        watch, self._watch = self._watch, None
        if watch is None:
            return
        self.context.writer.touch("thrown")
        judged = self._steps and not watch.blind
        if judged:
            judging = Judging(watch.flow, self._gradients, self._steps)
            alive = [each for ref, _ in self._owners.values() if (each := ref()) is not None]
            for row in judging.rows(homes_of(alive) if self._gradients else {}):
                self.context.add(row)
        nodes = watch.flow.nodes
        copied = sum(node.nbytes for node in nodes if node.copied)
        self.context.add(
            ThrownRow(
                what="all",
                steps=self._steps,
                operators=len(nodes) / max(1, self._steps),
                share=1.0,
                nbytes=copied // max(1, self._steps),
                blind=watch.blind,
                trained=self._stepped > 0,
            )
        )
        self._gradients, self._owners = [], {}

    # -- memory that is taken away -----------------------------------------------------------------

    def _taking(self, original: Callable[..., Any], *, address: bool) -> Callable[..., Any]:
        @functools.wraps(original)
        def taken(*args: Any, **kwargs: Any) -> Any:
            watch = self._watch
            if (
                watch is not None
                and self.watches_operators
                and not LOOKING.depth
                and args
                and isinstance(args[0], torch.Tensor)
                and not sys._getframe(1).f_code.co_filename.startswith(OWN)
            ):
                try:
                    watch.escape(args[0], address=address)
                except Exception as error:  # the user's step continues
                    self.missed(error)
            return original(*args, **kwargs)

        return taken

    # -- other threads -----------------------------------------------------------------------------

    def _starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def started(*args: Any, **kwargs: Any) -> Any:
            watch = self._watch
            if watch is not None and not watch.flow.threads and args:
                try:
                    what = args[1] if len(args) > 1 else getattr(args[0], "_target", None)
                    files = [
                        file
                        for each in (getattr(args[0], "run", None), what)
                        if (file := _home(each))
                    ]
                    watch.flow.threads = any(map(self.context.frames.is_user, files))
                except Exception as error:  # the user's step continues
                    self.missed(error)
            return original(*args, **kwargs)

        return started

    def _look_for_threads(self) -> None:
        watch = self._watch
        if watch is None or watch.flow.threads or threading.active_count() == 1:
            return
        own = threading.get_ident()
        for number, top in sys._current_frames().items():
            frame: FrameType | None = None if number == own else top
            while frame is not None:
                watch.flow.threads |= self.context.frames.is_user(frame.f_code.co_filename)
                frame = frame.f_back

    # -- backwards ---------------------------------------------------------------------------------

    def backward_begins(self, call: Backward) -> None:
        self._open += 1
        watch = self._watch
        if watch is None or self._open > 1:
            return
        self._calls = watch.backwards = self._calls + 1
        path = watch.stacks.here()[0] if self.context.in_step else ()
        watch.backward = self._calls, path
        for tensor in call.tensors:
            watch.flow.kept.append(watch.value(tensor))

    def backward_ends(self, call: Backward) -> None:
        """Note what it left in the parameters' gradients."""
        self._open -= 1
        watch = self._watch
        if watch is None or self._open or watch.backward is None:
            return
        number, path = watch.backward
        watch.backward = None
        for owned, (ref, optimizer) in self._owners.items():
            parameter = ref()
            gradient = None if parameter is None else parameter.grad
            value = None if gradient is None else watch.find(gradient)
            if value is not None and value.node is not None and value.node.backward == number:
                self._gradients.append(
                    Gradient(
                        number, self.context.step, path, optimizer, owned, value, self._stepped
                    )
                )


def _home(function: Any) -> str:
    """The file that what a thread will run is written in; empty if that is not known."""
    while isinstance(function, functools.partial):
        function = function.func
    if not callable(function):
        return ""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    return "" if code is None else str(code.co_filename)
