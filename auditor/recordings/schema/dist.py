"""Rows about data parallel training: what DDP averages, and in which order samplers draw."""

from typing import Annotated

import msgspec

from auditor.recordings.row import At, MaybeAt, PassRow, doc


class DataParallelRow(PassRow, kw_only=True):
    """A module in a ``DistributedDataParallel``, once a pass, at its optimizer's first step."""

    part = "data_parallel"
    when = "loud"

    number: Annotated[int, doc("its number")]
    at: MaybeAt = None
    what: Annotated[str, doc("class of the module inside")] = ""
    ranks: Annotated[int, doc("of its process group")] = 0
    bytes: Annotated[int, doc("of its parameters that require gradients")] = 0


class GradientSyncRow(PassRow, kw_only=True):
    """An optimizer stepped on parameters of such a module."""

    part = "gradient_syncs"
    when = "loud"

    number: Annotated[int, doc("that of its row in `data_parallel`")]
    at: At
    n: Annotated[
        int,
        doc(
            "backward passes since the gradients were last cleared or stepped on that averaged them "
            "over the ranks; `at` is where the last of these was called, of none where the last of "
            "`local`"
        ),
    ]
    local: Annotated[
        int, doc("passes after the last of `n` that averaged nothing (`no_sync`): the rank's own")
    ] = 0
    local_at: Annotated[int | None, doc("where the last of these was called, in `sites`")] = None
    entered_at: Annotated[int | None, doc("where `no_sync` was called for it, in `sites`")] = None
    bypassed: Annotated[
        int,
        doc(
            "passes that reached its parameters where only modules inside it were called, past its "
            "own forward; `at` is where the last of these was called if `n` and `local` are 0"
        ),
    ] = 0


class SamplerEpochRow(PassRow, kw_only=True):
    """A loader began an epoch whose ``DistributedSampler`` shuffles. The line makes its iterator."""

    part = "sampler_epochs"
    when = "quiet and loud"

    number: Annotated[int, doc("its number")]
    at: MaybeAt = None
    loader_at: Annotated[int | None, doc("the loader's `made_at` in `loaders`, or null")] = None
    replicas: Annotated[int, doc("`num_replicas`")] = 0
    epoch: Annotated[int, doc("its `epoch`, as `set_epoch` sets it")] = 0
    stack: Annotated[list[int], doc("the user's frames, outermost first: numbers in `sites`")] = (
        msgspec.field(default_factory=list)
    )


class BatchDigestRow(PassRow, kw_only=True):
    """What one loader gave to one step with gradients, if the process is a rank of several."""

    part = "batch_digests"
    when = "loud, with several ranks"

    at: MaybeAt = None
    loader_at: Annotated[int | None, doc("the `DataLoader(...)` call, in `sites`, or null")] = None
    rank: Annotated[int, doc("of the default process group")] = 0
    ranks: Annotated[int, doc("its size")] = 0
    digest: Annotated[str, doc("of first bytes of each batch's first tensor; or empty")] = ""


class CommunicationRow(PassRow, kw_only=True):
    """One collective of one step, whoever issued it: the program, `DistributedDataParallel`, FSDP,
    DTensor. In the order in which they were issued, of the first 3 steps of the pass.
    """

    part = "communication"
    when = "loud on a null device, else numbers; with several ranks"

    at: Annotated[At, doc("where it is issued; of one in a backward, where that is called")]
    what: Annotated[str, doc("`all_reduce`, `all_gather`, `reduce_scatter`, `broadcast`, ...")]
    group: Annotated[str, doc("what torch says that its process group is for")] = ""
    ranks: Annotated[int, doc("of the group; 0: not known")] = 0
    dtype: Annotated[str, doc("bytes of the tensors that are passed")] = ""
    bytes_in: Annotated[int, doc("of the tensors that this rank gives")] = 0
    bytes_out: Annotated[int, doc("of the tensors that it gets")] = 0
    waited_at: Annotated[
        int | None,
        doc(
            "where the program waits for it: a number in `sites`; null: torch waits "
            "(on its own stream, at a backward's end), or no wait was seen"
        ),
    ] = None
    between: Annotated[int | None, doc("operators computed between issue and wait; or null")] = None


class RankMemoryRow(PassRow, kw_only=True):
    """What of a rank's device memory is for what at an optimizer's last step: once a pass."""

    part = "rank_memory"
    when = "loud, on a device, with several ranks"

    parameters: Annotated[int, doc("bytes of parameters and buffers, of shards this rank's own")]
    gradients: Annotated[int, doc("bytes of their gradients")] = 0
    optimizer: Annotated[int, doc("bytes of the optimizers' states")] = 0
