"""What probes of DIST rules write, and these rules read."""

from typing import Annotated

from auditor.recordings.row import At, LineRow, PassRow, doc


class CollectiveRow(LineRow, kw_only=True):
    """Collectives that one user's line called in one step, by ``torch.distributed`` function."""

    part = "collectives"
    when = "loud, with several ranks"

    passes = ("loud",)

    what: Annotated[str, doc("the function: `all_reduce`, `barrier`, ...")]
    bytes: Annotated[int, doc("of the tensors given to them")] = 0
    ranks: Annotated[int, doc("of the default process group")] = 0


class CollectiveCallRow(PassRow, kw_only=True):
    """A collective over all ranks that a line of the user's is about to call. The first 16 of a
    step are written at once, so that they are there when a call never ends; the first 20,000 of a
    run.
    """

    part = "collective_calls"
    when = "all passes, with several ranks"

    at: At
    what: Annotated[str, doc("the function: `all_reduce`, `barrier`, ...")]
    total: Annotated[int, doc("steps that began before it, of all passes")] = 0
    numbers: Annotated[int, doc("in the tensors given to it")] = 0
