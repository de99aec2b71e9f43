"""Rows about backward and autograd graphs: who calls, what is kept, what is never walked, what
never gets a gradient.
"""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import Item, LineRow, MaybeAt, N, PassRow, doc, older


class BackwardRow(LineRow, kw_only=True):
    """Calls of backward per step, place and flags. Nested ones have no row."""

    part = "backward"
    when = "loud"

    passes = ("loud",)

    retain: Annotated[
        bool,
        doc(
            "the user's own line asked for retain_graph (not implied by create_graph, not another "
            "library's idea)"
        ),
    ]
    create: Annotated[bool, doc("with create_graph")] = older(value=False)
    followed: Annotated[
        bool, doc("with create_graph: `reused` says whether its gradients were differentiated")
    ] = older(value=False)
    anomaly: Annotated[bool, doc("under anomaly mode")] = older(value=False)
    held_bytes: Annotated[
        int | None,
        doc(
            "bytes of saved tensors that a retained graph still held after the call (measured once "
            "per place)"
        ),
    ] = None


class ReusedRow(PassRow, kw_only=True):
    """A backward walked a graph that a retained backward had kept, or one of gradients."""

    part = "reused"
    when = "loud"

    at: Annotated[int, doc("the retained backward")]
    by: Annotated[int | None, doc("the one that walked its graph")]
    n: N
    gradients: Annotated[
        bool, doc("it was the graph of the gradients that `at` made (create_graph)")
    ] = older(value=False)


class GraphRow(PassRow, kw_only=True):
    """Per step and root that holds tensors with a graph at the step's end.

    A root that is let go after being walked has one last row with `tensors: 0`.
    """

    part = "graphs"
    when = "loud"

    root: Annotated[str, doc("`trainer.py:Trainer.step:self.losses[*]`")]
    file: Annotated[str, doc("where it is filled, absolute")] = older("")
    function: Annotated[str, doc("the function there")] = older("")
    name: Annotated[str, doc("the variable")] = older("")
    path: Annotated[str, doc("from it (`.losses[*]`)")] = older("")
    line: Annotated[int | None, doc("null where not found")] = older(None)
    tensors: Annotated[int, doc("held now")]
    carried: Annotated[int, doc("tensors already there at an earlier boundary")] = older(0)
    oldest: Annotated[int, doc("age in steps of the oldest")] = older(0)
    nodes: Annotated[int, doc("autograd nodes reachable (capped at 20,000)")] = older(0)
    held_bytes: Annotated[
        int | None,
        doc(
            "saved tensors still held by the carried ones, parameters left out (null where torch "
            "cannot tell without unpacking)"
        ),
    ] = older(None)
    walked: Annotated[bool, doc("a later backward walked a carried graph (sticky)")] = older(
        value=False
    )
    read_back: Annotated[
        bool,
        doc(
            "a backward walked the graph of one of them after it was stored, or of the variable "
            "itself (sticky)"
        ),
    ] = older(value=True)


class Parameter(Item, kw_only=True):
    """A parameter by its name."""

    name: Annotated[str, doc("qualified name, else `group 0, parameter 3`")]
    shape: Annotated[list[int], doc("its sizes")] = older([])


class StillGroup(Item, kw_only=True):
    """A parameter group whose rate was 0 on all steps."""

    group: Annotated[int, doc("its number")]
    parameters: Annotated[int, doc("how many it has")]


class FedRow(PassRow, kw_only=True):
    """At the pass's end, one row per optimizer that stepped: its parameters that never had a
    gradient. Absent where none stepped.
    """

    part = "fed"
    when = "loud"
    why_absent = "no optimizer stepped while the auditor looked"

    at: MaybeAt
    optimizer: Annotated[str, doc("its class")]
    steps: Annotated[int, doc("its steps")]
    parameters: Annotated[int, doc("trainable ones")]
    unfed: Annotated[list[Parameter], doc("the first 20 without a gradient in all of its steps")]
    n: Annotated[int, doc("how many there are of these")]
    still: Annotated[list[StillGroup], doc("groups whose rate was 0 on all of them")]
    called_at: Annotated[
        int | None,
        doc("where the module that owns most of `unfed`, and none else, is called, in `sites`"),
    ] = older(None)
    called: Annotated[str, doc("its name in the model")] = older("")
    cut: Annotated[
        str,
        doc("what cuts one of `unfed` off: `detach`, `no_grad`, `checkpoint` (empty: not seen)"),
    ] = older("")
    cut_at: Annotated[int | None, doc("where, in `sites`")] = older(None)
