"""Rows about graphs and gradients: backward calls, what is kept or thrown away, how they clear."""

from typing import Annotated

import msgspec

from auditor.model import Site
from auditor.recordings.row import Item, LineRow, MaybeAt, PassRow, doc, older


class ThrownRow(PassRow, kw_only=True):
    """When the pass is over: one row per place whose work nobody needed, and one of the whole."""

    part = "thrown"
    when = "numbers"

    what: Annotated[
        str,
        doc(
            "`all`: the whole step; `gradient`: gradients that were cleared unread; "
            "`detach`: as `gradient`, and the place is where the graph could end; `window`: cleared "
            "before the next backward of this line, whose gradients an optimizer read; "
            "`result`: an unread result; `copy`: an unread copy to the device; "
            "`constant`: equal on every step; `repeat`: computed twice; `again`: as "
            "`repeat`, with a backward in between that may have freed the first graph"
        ),
    ]
    at: Annotated[int | None, doc("the line: a number in `sites`; null of the whole")] = None
    lines: Annotated[list[int], doc("further lines of the same work")] = msgspec.field(
        default_factory=list
    )
    other: Annotated[
        int | None,
        doc(
            "the backward of a `detach`; of a `repeat` or `again` the line that did it before; of a "
            "`result` the only line that runs `op`, if the place is a call that leads there"
        ),
    ] = None
    steps: Annotated[int, doc("on how many")] = 0
    operators: Annotated[float, doc("operators per step")] = 0.0
    share: Annotated[float, doc("of the work of all operators: bytes moved and operations")] = 0.0
    nbytes: Annotated[int, doc("bytes of results per step; of the whole: copied to the device")] = 0
    op: Annotated[str, doc("the operator with the most work; of copies what was copied")] = ""
    owner: Annotated[str, doc("of gradients: the class of the optimizer")] = ""
    names: Annotated[list[str], doc("of gradients: the first parameters")] = msgspec.field(
        default_factory=list
    )
    n: Annotated[int, doc("of gradients: parameters; of a window: its backwards")] = 0
    products: Annotated[int, doc("matrix products, convolutions and attentions among those")] = 0
    blind: Annotated[str, doc("of the whole: why nothing can be said")] = ""
    trained: Annotated[bool, doc("of the whole: an optimizer stepped")] = False

    @property
    def before(self) -> Site | None:
        """The line of `other`."""
        return self.site_of(self.other)

    @property
    def others(self) -> tuple[Site, ...]:
        """The further lines, each once."""
        sites = {site.place: site for site in map(self.site_of, self.lines)}
        return tuple(site for site in sites.values() if site.place != self.own.place)

    @property
    def own(self) -> Site:
        """The line of what is not the whole."""
        return self.site_of(self.at or 0)


class ZeroGradRow(LineRow, kw_only=True, tag_field="call", tag="zero_grad"):
    """Clearing gradients, per step and line."""

    part = "optimizer"
    when = "loud"

    passes = ("loud",)

    set_to_none: Annotated[bool, doc("else they are filled with zeros")] = older(value=True)
    owner: Annotated[
        str,
        doc(
            "`Optimizer` or `Module`, or `Tensor` for `grad.zero_()` of the user's own that the "
            "next backward adds to"
        ),
    ] = older("Optimizer")


class CensusRow(PassRow, kw_only=True):
    """State of modules and optimizers that is lost, or that changes although it should not, or does
    not although it should: one row for each line, once that is known.
    """

    part = "census"
    when = "all"

    at: MaybeAt
    kind: Annotated[
        str,
        doc(
            "`remade` (an optimizer over what an equal one had stepped), `unread` (a loaded state "
            "that no step reads), `untied` (two weights that were one), `norm` (a frozen batch norm "
            "whose statistics move), `dropout` (in an evaluation in eval mode), `alias` (a network "
            "that is the trained one), `stale` (an optimizer beside the one whose rate a scheduler "
            "sets, which no longer steps), `sample` (stored data of a dataset that a fetch changes), "
            "`state` (of a recurrent layer, carried over to batches of a loader that shuffles), "
            "`rates` (groups that were made with different learning rates, and stepped with one), "
            "`average` (batch norms whose weights follow trained ones, and their statistics do not), `new` "
            "(a frozen layer with the weights of its constructor, put in another's place or missing in "
            "what was loaded), `zero` (frozen weights that are zero), `woken` (dropout of a frozen network that was in eval mode)"
        ),
    ]
    name: Annotated[str, doc("the class, function or name of what it is of")]
    other: Annotated[
        str,
        doc(
            "`untied`: the other weight; `alias`: the trained name; `stale`: the optimizer; "
            "`sample`: the attribute; `new`, `zero`: its name"
        ),
    ] = older("")
    n: Annotated[int, doc("how often, or how many tensors")] = older(0)
    steps: Annotated[int, doc("on how many steps")] = older(0)
    other_at: Annotated[
        int | None,
        doc(
            "`untied`: where they were tied; `unread`: where it was loaded; `norm`: where it runs; "
            "`stale`: where the scheduler steps; `state`: the line that calls that of the layer"
        ),
    ] = older(None)
    meant: Annotated[bool, doc("it may be on purpose")] = older(value=False)


class BackwardRow(LineRow, kw_only=True):
    """Calls of backward per step, place and flags. Nested ones have no row."""

    part = "backward"
    when = "loud"

    passes = ("loud",)

    retain: Annotated[
        bool, doc("the user's own line asked for retain_graph (no library, nor create_graph)")
    ]
    create: Annotated[bool, doc("with create_graph")] = older(value=False)
    followed: Annotated[
        bool, doc("with create_graph: `reused` says whether its gradients were differentiated")
    ] = older(value=False)
    held_bytes: Annotated[
        int | None, doc("bytes that a retained graph still held after the call (once per place)")
    ] = None


class ReusedRow(PassRow, kw_only=True):
    """A backward walked a graph that a retained backward had kept, or one of gradients."""

    part = "reused"
    when = "loud"

    at: Annotated[int, doc("the retained backward")]
    gradients: Annotated[
        bool, doc("it was the graph of the gradients that the call at `at` created (create_graph)")
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
    line: Annotated[int | None, doc("null if not found")] = older(None)
    tensors: Annotated[int, doc("held now")]
    carried: Annotated[int, doc("tensors already there at an earlier boundary")] = older(0)
    oldest: Annotated[int, doc("age in steps of the oldest")] = older(0)
    nodes: Annotated[int, doc("autograd nodes reachable (capped at 20,000)")] = older(0)
    held_bytes: Annotated[
        int | None,
        doc(
            "saved tensors still held by the carried ones, parameters left out (null if torch "
            "cannot tell without unpacking)"
        ),
    ] = older(None)
    walked: Annotated[bool, doc("a later backward walked a carried graph (sticky)")] = older(
        value=False
    )
    read_back: Annotated[
        bool, doc("a backward walked the graph of one after it was stored, or of the variable")
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
    n: Annotated[int, doc("how many trainable parameters had no gradient in all of its steps")]
    still: Annotated[list[StillGroup], doc("groups whose rate was 0 on all of them")]
    called_at: Annotated[
        int | None,
        doc(
            "where the module that owns most of `unfed`, and no other parameter, is "
            "called, in `sites`"
        ),
    ] = older(None)
    called: Annotated[str, doc("its name in the model")] = older("")
    cut: Annotated[
        str,
        doc(
            "what cuts one of `unfed` off: `detach`, `argmax`, `multinomial`, `no_grad`, "
            "`checkpoint` (empty: not seen)"
        ),
    ] = older("")
    cut_at: Annotated[int | None, doc("where, in `sites`")] = older(None)
    detached: Annotated[
        list[int], doc("each `detach()` like the one of `cut_at` that cuts the same one off")
    ] = older([])
    put_at: Annotated[
        int | None,
        doc("where the modules of `unfed`, which never ran, took others' places or lost theirs"),
    ] = older(None)
    put_from: Annotated[int | None, doc("the call of the modules' method which did it")] = older(
        None
    )
