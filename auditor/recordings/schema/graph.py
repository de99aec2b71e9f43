"""Rows about backward and autograd graphs: who calls, what is kept, what is never walked, what
never gets a gradient.
"""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import At, Item, MaybeAt, N, PassRow, doc, older


class BackwardRow(PassRow, kw_only=True):
    """Calls of backward per step, place and flags. Nested ones have no row."""

    part = "backward"
    when = "loud"

    at: At
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
    n: N
    us: Annotated[float, doc("host time inside (us)")] = older(0.0)
    anomaly: Annotated[bool, doc("under anomaly mode")] = older(value=False)
    held_bytes: Annotated[
        int | None,
        doc(
            "bytes of saved tensors that a retained graph still held after the call (measured once "
            "per place)"
        ),
    ] = None


class EnclosingRow(PassRow, kw_only=True):
    """One row for each different stack of user frames around a backward of the step."""

    part = "enclosing"
    when = "loud"

    lines: Annotated[list[int], doc("numbers of `sites`, innermost first")]


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


class SummedRow(PassRow, kw_only=True):
    """A backward over a sum of losses whose graphs are of one form, reach the same leaves and share
    no other node.
    """

    part = "summed"
    when = "loud, its first 3 steps"

    at: At
    n: Annotated[int, doc("losses")]
    saved_bytes: Annotated[int, doc("what the graphs held together, parameters left out")]
    each_bytes: Annotated[int, doc("what the largest of them held")]
    leaf_bytes: Annotated[int, doc("of the leaves that they reach")]


class RewalkRow(PassRow, kw_only=True):
    """One backward call, in the order of calls, of a step in which one walked autograd nodes that
    an earlier one of the same step had walked and kept.
    """

    part = "rewalked"
    when = "loud"

    at: At
    nodes: Annotated[int, doc("autograd nodes that it walked, leaves left out")]
    again: Annotated[int, doc("of these, walked and kept by an earlier call of the step")]
    newer: Annotated[int, doc("of those, made after the first call that kept its graph")]
    kept: Annotated[bool, doc("it kept its graph")] = older(value=False)
    summed: Annotated[
        bool,
        doc("its gradients are added up in `.grad` of all leaves, without a graph of their own"),
    ] = older(value=False)
    name: Annotated[str, doc("the variable that held the earlier graph (empty: not found)")] = (
        older("")
    )
    file: Annotated[str, doc("where it is filled, absolute")] = older("")
    function: Annotated[str, doc("the function there")] = older("")
    line: Annotated[int | None, doc("null where not found")] = older(None)


class CycleRow(PassRow, kw_only=True):
    """Leaves whose gradient has had a graph of its own since an earlier step, per step and line of
    `backward(create_graph=True)`.
    """

    part = "cycles"
    when = "loud"

    at: At
    leaves: Annotated[int, doc("how many")]
    held_bytes: Annotated[
        int | None, doc("saved tensors in these graphs (null where torch cannot tell)")
    ]


class EvalRow(PassRow, kw_only=True):
    """At the pass's end, one row per line that built a graph which nobody trains.

    It called a module in eval mode, one in train mode whose parameters no optimizer holds, or one
    that is trained and whose graphs nothing walked or kept, with gradients on and got a graph.
    """

    part = "evals"
    when = "loud"

    at: At
    module: Annotated[str, doc("its class")]
    mode: Annotated[str, doc("`eval`, `train` or `trained`")] = older("eval")
    n: N
    steps: Annotated[int, doc("on how many")]
    walked: Annotated[int, doc("graphs that a backward walked")]
    held: Annotated[bool, doc("one of an earlier step was still alive at the end")]
    saved_bytes: Annotated[int | None, doc("saved for one call")]
    fed: Annotated[bool, doc("something that it was given wants a gradient")] = older(value=True)
    parameters: Annotated[list[str], doc("its trainable parameters, as `strays` names them")] = (
        older([])
    )
    outer: Annotated[
        int | None,
        doc("the outermost line around it below which no graph is needed: a number in `sites`"),
    ] = older(None)


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


class RecomputeRow(PassRow, kw_only=True):
    """Calls of `torch.utils.checkpoint.checkpoint` and `checkpoint_sequential` without
    `use_reentrant`, per step, line and function.
    """

    part = "recompute"
    when = "loud"

    at: At
    name: Annotated[str, doc("the function")]
    library: Annotated[
        str, doc("file and function of the library that made the call, if not the user's code")
    ]
    lost: Annotated[
        bool,
        doc(
            "gradients were on, the module inside has parameters to train, and nothing that came "
            "out has a gradient"
        ),
    ]
    n: N


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


class StrayRow(PassRow, kw_only=True):
    """At the pass's end, one row per leaf that backward fed and that is in no optimizer or no
    module.

    Fed: it was given a gradient on at least two steps.
    """

    part = "strays"
    when = "loud"

    at: Annotated[int | None, doc("the backward that reached it first")] = older(None)
    name: Annotated[str, doc("`Model.body.weight`, else the variable that holds it")]
    registered: Annotated[bool, doc("a parameter of some module")]
    optimized: Annotated[bool, doc("in a group of any live optimizer")]
    shape: Annotated[list[int], doc("its sizes")]
    grad_bytes: Annotated[int, doc("of its gradient")]
    fed: Annotated[int, doc("steps that left it with a gradient")]
    changed: Annotated[
        bool | None,
        doc("its values (sampled) differ from those after its second step (null: not looked)"),
    ]
    touched: Annotated[
        int, doc("times that its gradient was cleared or changed between two backwards")
    ]
    asked: Annotated[bool, doc("named as input of a gradient")]
    file: Annotated[str | None, doc("where the variable is stored (null where not found)")] = older(
        None
    )
    function: Annotated[str, doc("the function there")] = older("")
    line: Annotated[int | None, doc("the line there")] = older(None)
    beside: Annotated[int, doc("optimized parameters of modules fed in the same pass")]


class KeptHookRow(PassRow, kw_only=True):
    """At the pass's end, one row per line of the program's own that registered hooks in steps of it
    and left them: those on the one owner that holds most of them.
    """

    part = "kept_hooks"
    when = "loud"

    at: At
    way: Annotated[str, doc("the function of torch that registered them: `register_forward_hook`")]
    owner: Annotated[str, doc("class of what they are on")]
    n: Annotated[int, doc("hooks of this line that were on it at the end")]
    added: Annotated[int, doc("steps of the pass that left at least one of them")]
    steps: Annotated[int, doc("steps of the pass")]
