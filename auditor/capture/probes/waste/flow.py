"""The flow of values through the operators of some steps: who made what, who read it, and what was
let go before anybody did.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from auditor.capture.instruments.storages import Storages

Path = tuple[int, ...]
"""The user's lines on the stack, as sites of the recording, outermost first."""


@dataclass(eq=False, slots=True)
class Node:
    """One call of an operator."""

    number: int
    step: int
    path: Path
    op: str
    work: int
    inputs: tuple[Value, ...]
    backward: int | None
    """Which backward of the pass it ran in; None: none."""
    sink: bool = False
    """Somebody else sees what it reads: the host, another process, a library."""
    fixed: bool = False
    """Its results are the same whatever the batch and the parameters hold."""
    compiled: bool = False
    """It ran under ``torch.compile``, which drops by itself what nobody needs."""
    graph: bool = False
    spots: tuple[tuple[int, int], ...] = ()
    """As ``path``, but the expressions of a line are apart."""
    records: int = 0
    """By which leaves its graph is known; 0: it has none."""
    after: int = 0
    """How many backwards had begun before it."""
    product: bool = False
    """Of matrices, a convolution or an attention."""
    nbytes: int = 0
    """Bytes of its results."""
    copied: str = ""
    """What was copied from the host to the device, in words."""
    recipe: int = 0
    forward: int | None = None
    """Of one that ran in a backward: number of its node in the graph."""
    repeats: Node | None = None
    """An earlier call of the same step with the same operands."""
    replaced: bool = False
    """What it made was overwritten whole."""
    spoiled: bool = False
    """What it made was written into later, with something that is not fixed."""
    made: list[Value] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Value:
    """What a storage held from one write to the next."""

    node: Node | None
    recipe: int
    fixed: bool = False
    raw: bool = False
    """Nobody has written it yet."""
    records: int = 0
    """Which leaves its graph goes back to, as a number; 0: it has none."""


@dataclass(eq=False, slots=True)
class Held:
    """What a storage holds now."""

    value: Value
    step: int
    """In which it was made; -1: before the pass."""
    escaped: bool = False
    """Somebody has its address: who reads it is not seen."""


@dataclass(eq=False)
class Flow:
    """All that was seen in a pass."""

    nodes: list[Node] = field(default_factory=list)
    held: Storages[Held] = field(default_factory=Storages)
    kept: list[Value] = field(default_factory=list)
    """Values that left the flow: numbers for NumPy, what the target returned."""
    stored: list[Value] = field(default_factory=list)
    """Values that outlived their step in more than a local variable."""
    threads: bool = False
    """The program has threads of its own: what they read is not seen."""

    def roots(self, *, until: int, stored: bool) -> list[Value]:
        """What is there at the end of the pass, of steps before ``until``; and, with ``stored``,
        what outlived its step.
        """
        return [
            *self.kept,
            *(self.stored if stored else ()),
            *(
                each.value
                for _, each, there in self.held.items()
                if each.escaped
                or (there and (each.value.node is None or each.value.node.step < until))
            ),
        ]

    def survivors(self, step: int) -> Iterator[tuple[int | None, Value]]:
        """Storages that were made or written in this step and are still there, with what they hold:
        a buffer that the next step writes over may be read in between, in a step that is not seen.
        """
        return (
            (key, each.value)
            for key, each, there in self.held.items()
            if there and step in (each.step, each.value.node.step if each.value.node else -1)
        )

    def sinks(self) -> list[Node]:
        """Calls that somebody else sees."""
        return [node for node in self.nodes if node.sink]


@dataclass(frozen=True)
class Reached:
    """What values and nodes went into something."""

    nodes: frozenset[Node]
    values: frozenset[Value]


def behind(values: Iterable[Value], nodes: Iterable[Node] = ()) -> Reached:
    """All that went into these values, and into what these calls read."""
    seen_nodes, seen_values = set[Node](), set[Value]()
    waiting = list(values)
    for node in nodes:
        seen_nodes.add(node)
        waiting.extend(node.inputs)
    while waiting:
        value = waiting.pop()
        if value in seen_values:
            continue
        seen_values.add(value)
        made = value.node
        if made is not None and made not in seen_nodes:
            seen_nodes.add(made)
            waiting.extend(made.inputs)
    return Reached(frozenset(seen_nodes), frozenset(seen_values))
