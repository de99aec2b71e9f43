"""What probes of DIST rules write, and these rules read."""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import At, MaybeAt, PassRow, Us, doc


class BufferBroadcastRow(PassRow, kw_only=True):
    """A module in a ``DistributedDataParallel`` whose buffers rank 0 sends to the others before a
    forward: once a pass. None of a module whose buffers are too large to be compared.
    """

    part = "buffer_broadcasts"
    when = "loud, not on a null device"
    why_none = "no DistributedDataParallel sent buffers that could be compared"

    number: Annotated[int, doc("its number")]
    at: MaybeAt = None
    what: Annotated[str, doc("class of the module inside")] = ""
    ranks: Annotated[int, doc("of its process group")] = 0
    n: Annotated[int, doc("forwards before which they were sent")] = 0
    bytes: Annotated[int, doc("of the buffers that are sent at once")] = 0
    buffers: Annotated[int, doc("how many these are")] = 0
    changed: Annotated[int, doc("of these, buffers that held other values when the pass ended")] = 0
    keyword: Annotated[
        str, doc("what turns it off: `forward_sync_buffers`, before torch 2.13 `broadcast_buffers`")
    ] = "broadcast_buffers"


class NormBatchRow(PassRow, kw_only=True):
    """A module in a ``DistributedDataParallel`` with batch norms that ran in training, none of them
    ``SyncBatchNorm``: once a pass.
    """

    part = "norm_batches"
    when = "loud"
    why_none = "no batch norm ran in a DistributedDataParallel"

    at: MaybeAt = None
    what: Annotated[str, doc("class of the module inside")] = ""
    norm: Annotated[str, doc("class of the first of these norms")] = ""
    norm_at: Annotated[
        int | None, doc("where the one with the fewest values ran: a number in `sites`, or null")
    ] = None
    ranks: Annotated[int, doc("of its process group")] = 0
    norms: Annotated[int, doc("how many ran")] = 0
    n: Annotated[int, doc("forwards of the one with the fewest values")] = 0
    samples: Annotated[int, doc("of the largest batch that one was given")] = 0
    values: Annotated[
        int, doc("of a channel, in the largest batch of the norm that was given the fewest")
    ] = 0


class CollectiveRow(PassRow, kw_only=True):
    """Collectives that one line of the user's called in one step, by functions of
    ``torch.distributed``.
    """

    part = "collectives"
    when = "loud, with several ranks"

    at: At
    what: Annotated[str, doc("the function: `all_reduce`, `barrier`, ...")]
    n: Annotated[int, doc("calls")] = 0
    bytes: Annotated[int, doc("of the tensors given to them")] = 0
    us: Us = 0.0
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


class RankSaveRow(PassRow, kw_only=True):
    """A `torch.save` of a rank that shares its machine with others; the first 64 of a run."""

    part = "rank_saves"
    when = "all passes, with several ranks, not on a null device"

    at: At
    us: Us = 0.0
    path: Annotated[str | None, doc("where it wrote to (null: a buffer or an open file)")] = None
    bytes: Annotated[int | None, doc("its size afterwards")] = None
    digest: Annotated[
        str,
        doc("of the tensors in it; empty where one is a shard, there are none, or too many"),
    ] = ""
