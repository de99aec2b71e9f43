"""What probes of CKPT rules write, and these rules read."""

from typing import Annotated

from auditor.recordings.row import At, PassRow, doc


class KeptStateRow(PassRow, kw_only=True):
    """At the pass's end, one row per line whose `state_dict()` the program kept over an optimizer
    step that changed the tensors in it: of all passes so far.
    """

    part = "states"
    when = "loud"

    at: At
    module: Annotated[str, doc("its class")]
    taken: Annotated[int, doc("calls of the line")]
    steps: Annotated[int, doc("such steps over which one of them was kept, at most")]
    loaded: Annotated[
        int, doc("calls of `load_state_dict` that gave the module its own tensors back after that")
    ]
    loaded_at: Annotated[int | None, doc("the line of the last of these")] = None
    loaded_at_once: Annotated[int, doc("loads of the module's own tensors with no step in between")]
