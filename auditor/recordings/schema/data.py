"""Rows about data loaders and what they yield, and about saved and loaded checkpoints."""

from typing import Annotated

from auditor.recordings.row import At, CalledRow, Item, PassRow, Row, doc, older


class LoaderRow(Row, kw_only=True):
    """One row per kind of DataLoader iterator. Files and lines are null if a library defines it."""

    part = "loaders"
    when = "quiet and loud"

    loader: Annotated[int, doc("its number")]
    at: Annotated[int | None, doc("where it is consumed: a number in `sites`, or null")] = older(
        None
    )
    made_at: Annotated[int | None, doc("the `DataLoader(...)` call, null if unseen")] = older(None)
    workers: Annotated[int, doc("`num_workers`")] = older(0)
    pin_memory: Annotated[bool, doc("as given")] = older(value=False)
    persistent: Annotated[bool | None, doc("`persistent_workers`; null if unknown")] = older(None)
    batch_size: Annotated[int | None, doc("null if a batch sampler cuts them")] = older(None)
    dataset: Annotated[str, doc("qualified name of its class, below any `Subset`")] = older("")
    dataset_file: Annotated[str | None, doc("where the class is defined")] = older(None)
    dataset_line: Annotated[int | None, doc("the line there")] = older(None)
    collate: Annotated[str, doc("qualified name of the collate function")] = older("")
    collate_file: Annotated[str | None, doc("where that is defined")] = older(None)
    collate_line: Annotated[int | None, doc("the line there")] = older(None)
    length: Annotated[int | None, doc("batches of an epoch (null if it has no length)")] = older(
        None
    )
    samples: Annotated[int | None, doc("samples of an epoch by its sampler, or null")] = older(None)
    sorted_classes: Annotated[
        int | None, doc("classes of its dataset, one after the other; null: no")
    ] = older(None)
    open_file: Annotated[bool, doc("its dataset keeps a file open")] = older(value=False)
    draws: Annotated[bool, doc("its dataset keeps a random generator")] = older(value=False)
    batches_file: Annotated[str | None, doc("where `__iter__` of what cuts its batches is")] = None
    batches_line: Annotated[int | None, doc("the line there")] = None
    iter_at: Annotated[int | None, doc("where the first step with a batch makes it")] = None


class BatchRow(PassRow, kw_only=True):
    """What one loader gave to one step. The loud pass adds what the batches hold."""

    part = "batches"
    when = "quiet and loud"

    loader: Annotated[int, doc("its number in `loaders`")]
    n: Annotated[int, doc("batches")] = older(0)
    wait_us: Annotated[
        float,
        doc(
            "time the step waited in `__next__`, in making the iterator and in ending its "
            "workers, without the time in which its thread was ready to run and had no processor"
        ),
    ] = older(0.0)
    made: Annotated[int, doc("iterators that began")] = 0
    start_us: Annotated[
        float, doc("of the wait: making iterators, their first batch, ending their workers")
    ] = 0.0
    queued_us: Annotated[
        float | None,
        doc(
            "(quiet) the longest that one of its workers was ready to run and had no processor, "
            "since the step before that took a batch (absent: no workers, or the system does not "
            "say)"
        ),
    ] = None
    devices: Annotated[dict[str, int] | None, doc('(loud) tensors by device: `{"cpu": 3}`')] = None
    bytes: Annotated[int | None, doc("(loud) of these tensors")] = None
    sample_devices: Annotated[
        list[str] | None,
        doc(
            "(loud) devices of the samples before they are collated; `[]` where samples are made "
            "in workers"
        ),
    ] = None
    in_order: Annotated[
        int,
        doc(
            "(loud) batches of a loader with `sorted_classes` with a vector of whole numbers that "
            "never falls, taken with gradients on"
        ),
    ] = 0
    texts: Annotated[
        list[list[int]] | None,
        doc(
            "(loud) of each batch with rows that are padded, taken with gradients on: their width and "
            "the lengths of the rows (at most 512)"
        ),
    ] = None
    default_device: Annotated[str | None, doc("(loud) where torch makes new tensors: `cpu`")] = None


class LoadingRow(PassRow, kw_only=True):
    """Time in which one stack was seen inside the loading, as an observer met it every few ms.
    Written at the end of the pass. An empty stack that was never seen has the time for which no
    look can answer.
    """

    part = "loading"
    when = "loud"

    loader: Annotated[int, doc("its number in `loaders`")]
    where: Annotated[str, doc("`step`: the step's thread, inside the loader; `worker`")]
    phase: Annotated[str, doc("`dataset`, `collate`, `sampler`; `other`: waiting for workers etc.")]
    stack: Annotated[list[int], doc("the user's frames, outermost first: numbers in `sites`")]
    us: Annotated[float, doc("time")] = 0.0
    n: Annotated[int, doc("how often it was seen")] = 0


class SaveRow(CalledRow, kw_only=True):
    """One `torch.save` on the step's thread; waiting for a processor is not in its time."""

    part = "saves"
    when = "quiet"

    passes = ("quiet",)

    path: Annotated[str | None, doc("where it wrote to (null: a buffer or an open file)")]
    replaced: Annotated[bool, doc("whether a file that was not empty was there")]
    bytes: Annotated[int | None, doc("its size afterwards")]
    compiled: Annotated[
        str,
        doc(
            "name of a tensor in it that has a part `_orig_mod`, as in the state of what "
            "`torch.compile(module)` gives; looked for once a line"
        ),
    ] = ""
    beside: Annotated[
        int,
        doc("bytes of its tensors' storages that are of none of them, at the line's first save"),
    ] = 0


class SyncedRow(CalledRow, kw_only=True):
    """Calls that wait until a file is on storage, at a line in a step; without processor waits."""

    part = "synced"
    when = "quiet"

    passes = ("quiet",)

    name: Annotated[str, doc("`os.fsync`, `os.fdatasync` or `SummaryWriter.flush`")]


class DrawsRow(PassRow, kw_only=True):
    """At the end, a row per generator of which several workers drew the same first numbers."""

    part = "draws"
    when = "loud, of workers that were started in any pass"

    loader: Annotated[int, doc("its number in `loaders`")]
    name: Annotated[str, doc("what leads to it from the dataset or the collate function")]
    kind: Annotated[str, doc("its class")]
    owner: Annotated[str, doc("class of the object that has it")] = older("")
    module: Annotated[str, doc("where that class is defined")] = older("")
    workers: Annotated[list[int], doc("the workers' numbers")]


class ListedRow(PassRow, kw_only=True):
    """At the pass's end, one row per line that made tensors of lists of NumPy arrays."""

    part = "listed"
    when = "loud"

    at: At
    where: Annotated[str, doc("`step`, or `worker`: in a loader's worker process")]
    loader: Annotated[int | None, doc("(worker) its number in `loaders`")] = None
    n: Annotated[int, doc("calls")] = older(0)
    us: Annotated[float, doc("time inside")] = older(0.0)
    arrays: Annotated[int, doc("arrays in these lists")] = older(0)
    numbers: Annotated[int, doc("numbers in them")] = older(0)
    fetch_us: Annotated[
        float, doc("(worker) time of creating and collating the samples of the batches with a call")
    ] = older(0.0)


class RereadRow(PassRow, kw_only=True):
    """At the pass's end, one row per line that read whole files while batches were made."""

    part = "reread"
    when = "loud"

    at: At
    where: Annotated[str, doc("`step`, or `worker`: in a loader's worker process")]
    name: Annotated[str, doc("the function, as `numpy.load`")]
    loader: Annotated[int | None, doc("(worker) its number in `loaders`")] = None
    n: Annotated[int, doc("reads")] = older(0)
    again: Annotated[int, doc("reads of a file that the same batch or step had read")] = older(0)
    us: Annotated[float, doc("time inside")] = older(0.0)
    batches: Annotated[int, doc("batches or steps with a read")] = older(0)
    bytes: Annotated[int, doc("size of the largest file that was read again")] = older(0)
    path: Annotated[str, doc("the largest file that was read again")] = ""
    fetch_us: Annotated[
        float, doc("(worker) time of creating and collating the samples of the batches with a read")
    ] = older(0.0)


class RateGroup(Item, kw_only=True):
    """Learning rates of one parameter group, each as `{lr, initial_lr?, max_lr?}`."""

    before: Annotated[dict[str, float], doc("before the call")]
    after: Annotated[dict[str, float], doc("after it")]
    first: Annotated[dict[str, float], doc("at the first step since")]


class LoadRow(PassRow, kw_only=True, tag_field="what"):
    """A `load_state_dict` outside the steps; inside them, of optimizers that had not stepped."""

    part = "loads"
    when = "from the start"

    at: At
    owner: Annotated[str, doc("its class")]
    bad: Annotated[int, doc("tensors of it that are not finite")]
    tensors: Annotated[list[str], doc("names of the first 5 tensors that are not finite")]


class ModuleLoadRow(LoadRow, kw_only=True, tag="module"):
    """Of a module: only if it holds what is not finite; minus infinity in a mask aside."""


class OptimizerLoadRow(LoadRow, kw_only=True, tag="optimizer"):
    """Of an optimizer: written when it steps for the first time since."""

    groups: Annotated[list[RateGroup], doc("its parameter groups")] = older([])
    default: Annotated[float | None, doc("the default rate of the optimizer's class")] = older(None)
    made_at: Annotated[int | None, doc("the line that made it")] = older(None)
