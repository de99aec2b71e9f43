"""What probes of GRAPH rules write, and these rules read."""

from typing import Annotated

from auditor.model import Site
from auditor.recordings.row import At, LineRow, N, PassRow, doc, older


class SummedRow(PassRow, kw_only=True):
    """A backward over losses whose graphs have one form, the same leaves and no more in common."""

    part = "summed"
    when = "loud, its first 3 steps"

    at: At
    n: Annotated[int, doc("losses")]
    saved_bytes: Annotated[int, doc("what the graphs held together, parameters left out")]
    each_bytes: Annotated[int, doc("what the largest of them held")]
    leaf_bytes: Annotated[int, doc("of the leaves that they reach")]

    @property
    def lost_bytes(self) -> int:
        """What need not be there at one time."""
        return max(0, self.saved_bytes - self.each_bytes)


class CycleRow(LineRow, kw_only=True):
    """Leaves whose gradient keeps an earlier step's graph, per `backward(create_graph=True)`."""

    part = "cycles"
    when = "loud"
    passes = ("loud",)

    us: Annotated[float, doc("not measured")] = 0.0
    leaves: Annotated[int, doc("how many")]
    held_bytes: Annotated[int | None, doc("saved tensors in these graphs (null if unknown)")]


class EvalRow(PassRow, kw_only=True):
    """At the pass's end, one row per line that built a graph without training anything.

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
    watched: Annotated[int, doc("of how many; 0: unknown")] = older(0)
    walked: Annotated[int, doc("graphs that a backward walked")]
    held: Annotated[bool, doc("one of an earlier step was still alive at the end")]
    saved_bytes: Annotated[int | None, doc("saved for one call")]
    fed: Annotated[bool, doc("something that it was given wants a gradient")] = older(value=True)
    parameters: Annotated[list[str], doc("its trainable parameters, as in `strays`")] = older([])
    outer: Annotated[int | None, doc("outermost line around it below which no graph is needed")] = (
        older(None)
    )


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
        bool | None, doc("its sampled values differ from its second step's (or null)")
    ]
    touched: Annotated[int, doc("times that its gradient was reset or changed between backwards")]
    asked: Annotated[bool, doc("named as input of a gradient")]
    file: Annotated[str | None, doc("where the variable is stored (null if not found)")] = older(
        None
    )
    function: Annotated[str, doc("the function there")] = older("")
    line: Annotated[int | None, doc("the line there")] = older(None)
    result_of: Annotated[
        str, doc("the variable holds what was computed from this `Parameter` or `Tensor`, once")
    ] = ""
    partly: Annotated[bool, doc("an optimizer holds other parameters of its model")] = False
    beside: Annotated[int, doc("optimized parameters of modules fed in the same pass")]
    put_at: Annotated[
        int | None, doc("where its module took the place of one that an optimizer holds")
    ] = older(None)
    put_from: Annotated[int | None, doc("the call of the modules' method which did it")] = older(
        None
    )

    @property
    def made(self) -> Site | None:
        """The line that stores it, of a module's parameter the one that keeps the module in a list
        or dictionary of Python's; None if there is none, or unknown.
        """
        file, line = self.file, self.line
        return self.home.site_at(file, line, self.function) if file and line else None

    @property
    def known(self) -> bool:
        """The program asks for its gradient by name, or clears or changes it."""
        return self.asked or self.touched > 0
