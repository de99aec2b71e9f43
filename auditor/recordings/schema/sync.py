"""Rows about the device: what makes the host wait for it, its memory, and the steps' way on it."""

from typing import Annotated

from auditor.recordings.row import LineRow, MaybeAt, N, PassRow, Row, doc, older


class CourseRow(PassRow, kw_only=True):
    """The way that a step took, by the lines whose operators ran on the device.

    Written by a rehearsal and by the run on the null device beside it, so that they can be
    compared.
    """

    part = "course"
    when = "a rehearsal with a null device beside it: loud; null device: all"

    global_step: Annotated[int, doc("of the run, warm-up included")]
    places: Annotated[list[int], doc("lines in order (in `sites`), once for a run of operators")]
    read_at: Annotated[list[int], doc("lines of scalar reads in order")]
    read: Annotated[list[str], doc("what they gave, as Python writes it")]
    sized: Annotated[list[int], doc("lines of operators whose result's size depends on values")]
    answered: Annotated[int, doc("null device: reads that got the rehearsal's value")] = 0


class DeviceWorkRow(PassRow, kw_only=True):
    """What the null device was asked for on a line in a step, by its own log."""

    part = "device_work"
    when = "null device: loud"

    at: MaybeAt
    n: N
    launches: Annotated[int, doc("kernels, those of libraries included")]
    waits: Annotated[int, doc("calls that made the host wait for the device")]
    calls: Annotated[list[str], doc("their names, each once: `cudaStreamSynchronize`")]


class OwnerRow(PassRow, kw_only=True):
    """What blocks of device memory are for: at each optimizer's step the addresses of the storages
    of what it owns.

    One row with `what` = `step` stands where a step begins.
    """

    part = "owners"
    when = "a rehearsal: loud; CUDA: memory"

    what: Annotated[str, doc("`parameter`, `gradient`, `optimizer state`, `workspace`, `step`")]
    time_us: Annotated[int, doc("since 1970, as in snapshots: an address serves many purposes")]
    addresses: Annotated[list[int], doc("in ascending order")]


class GrowingRow(PassRow, kw_only=True):
    """A variable that held more after each step, or batch."""

    root: Annotated[str, doc("`trainer.py:Trainer.step:self.seen[*]`")]
    file: Annotated[str, doc("where it is filled, absolute")] = older("")
    function: Annotated[str, doc("the function there")] = older("")
    name: Annotated[str, doc("the variable")] = older("")
    path: Annotated[str, doc("from it (`.seen[*]`)")] = older("")
    line: Annotated[int | None, doc("null if not found")] = older(None)
    tensors: Annotated[list[int], doc("held at the end of each step")]
    nbytes: Annotated[list[int], doc("their bytes, likewise")]
    devices: Annotated[list[str], doc("where the last ones lie")] = older([])
    kind: Annotated[str, doc("`tensors`, `arrays` (NumPy), or `values`")] = older("tensors")


class KeptRow(GrowingRow, kw_only=True):
    """At the pass's end, one row per variable that held more tensors without a graph, arrays or
    values than at the first step's end, or as many with more bytes.
    """

    part = "kept"
    when = "loud"


class WorkerKeptRow(GrowingRow, kw_only=True):
    """The same of a container that a loader's dataset or its module has in each worker process: the
    sums over its workers after each batch, from that after which one held more. Where the process
    that trains fetches the samples itself, only of those that are ``beyond``, after each step.
    """

    part = "worker_kept"
    when = "loud"
    optional = True

    beyond: Annotated[
        bool,
        doc("nearly each sample that one worker fetched again stored one item more"),
    ] = False
    fetched: Annotated[int, doc("samples that it fetched again")] = older(0)
    stored: Annotated[int, doc("items that it held more after these")] = older(0)
    workers: Annotated[int, doc("processes; 0: the one that trains")] = older(1)


class WorkerPagesRow(PassRow, kw_only=True):
    """The container with the most Python objects that the forked workers of a loader reach, and what
    their first batches copied of the memory that they share. Written at the end of the pass.
    """

    part = "worker_pages"
    when = "loud, of workers"
    optional = True

    loader: Annotated[int, doc("its number in `loaders`")]
    workers: Annotated[int, doc("worker processes")]
    file: Annotated[str, doc("where the container is filled, absolute")]
    function: Annotated[str, doc("the function there")]
    line: Annotated[int, doc("the line there")]
    name: Annotated[str, doc("the variable, with the path from it (`self.records`)")]
    n: Annotated[int, doc("items")]
    nbytes: Annotated[int, doc("bytes of the items as Python objects, of a sample of them")]
    copied: Annotated[list[int], doc("bytes copied by each worker's second to fourth batch")]


BURST = 10
"""Times in one step from which it may be a phase (a rollout, an evaluation): a log reads fewer."""


class ReadRow(LineRow, kw_only=True):
    """Reads of a tensor's value on the host: one row per step, place and kind."""

    part = "reads"
    when = "CUDA, a rehearsal: loud"

    passes = ("loud",)

    kind: Annotated[
        str,
        doc(
            "`item` (scalar read), `check` (whether a linalg function worked), `cpu`, `numpy`, `tolist`, `to_cpu`, `print`, `nonzero`, "
            "`masked_select`, `mask_index`, "
            "`mask_put`, `unique`, `equal`, `bincount`, `repeat_interleave`"
        ),
    ]
    span_us: Annotated[float, doc("from the first of them to the last (us)")] = 0.0
    lib: Annotated[str, doc("`loader` inside a data loader, else empty")] = older("")


class CopyRow(LineRow, kw_only=True):
    """Copies from host to device, one row per step, place and kind. The others are `reads`."""

    part = "copies"
    when = "CUDA, a rehearsal: loud"

    passes = ("loud",)

    us: Annotated[float, doc("not measured")] = 0.0
    lib: Annotated[str, doc("`loader` inside a data loader, else empty")] = older("")
    pinned: Annotated[bool, doc("the host's side is page-locked")] = older(value=False)
    blocking: Annotated[bool, doc("the host waits")] = older(value=False)
    constant: Annotated[bool, doc("numbers written in Python")] = older(value=False)
    index: Annotated[bool, doc("an array or tensor of the host that indexes one of the device")] = (
        older(value=False)
    )
    loader: Annotated[int | None, doc("number of the loader whose batch it was, or null")] = older(
        None
    )
    rewritten: Annotated[
        bool, doc("a loader's batch was written to on the host after it was copied")
    ] = older(value=True)
    bytes: Annotated[int, doc("of all n")]


class DeviceUseRow(PassRow, kw_only=True):
    """How much of a step ran on the shadow device."""

    part = "device_use"
    when = "a rehearsal: loud"

    n: Annotated[int, doc("operators that ran there in the step")]


class LimitRow(Row, kw_only=True):
    """What the shadow device cannot do; the rehearsal ended there."""

    part = "limits"
    when = "a rehearsal"

    at: MaybeAt
    operator: Annotated[str, doc("what was called")]
    reason: Annotated[str, doc("a sentence")]


class CallRow(LineRow, kw_only=True):
    """Calls from user code of functions that manage or wait for the device's memory and queue, per
    step and line.

    `reset_peak_memory_stats`, `reset_accumulated_memory_stats`, `empty_cache`, `synchronize`,
    `memory_stats`, `memory_summary`, `memory_snapshot`, `mem_get_info`, `max_memory_allocated`,
    `memory_allocated`, `memory_reserved`, `max_memory_reserved`, `ipc_collect`, `gc.collect`, and
    `Event.synchronize`, `Stream.synchronize` where the host has something to wait for. Waiting for a
    processor is not in their time.
    """

    part = "calls"
    when = "quiet and loud"

    name: Annotated[str, doc("of the function")]
