"""What probes of CKPT rules write, and these rules read."""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import At, N, PassRow, doc, older


class KeptStateRow(PassRow, kw_only=True):
    """At the pass's end, one row per line whose `state_dict()` somebody kept over an optimizer step
    that changed the tensors in it: of all passes so far.
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
    loaded_at_once: Annotated[int, doc("the same calls with no step between")]


class PartialResumeRow(PassRow, kw_only=True):
    """A file with one optimizer's and one scheduler's state, of which only one was loaded before the
    optimizer stepped; the other one's owner is there, and at its beginning.
    """

    part = "resumes"
    when = "from the start"

    at: Annotated[int, doc("where the one was loaded: a number in `sites`")]
    file_at: Annotated[int, doc("where `torch.load` was called, in `sites`")]
    left_out: Annotated[str, doc("`scheduler` or `optimizer`")]
    key: Annotated[str, doc("where its state lies in the file (`train.scheduler`)")]
    owner: Annotated[str, doc("class of what was left as it was")]
    saved: Annotated[int, doc("of a scheduler: its `last_epoch` in the file")] = older(0)
    now: Annotated[int, doc("of a scheduler: its `last_epoch` when the optimizer stepped")] = older(
        0
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
