"""Each rule at the edges of its thresholds, on tables made by hand: no torch, no recording."""

from dataclasses import replace

import pytest
from auditor.rules.amp.precision import GradScalerMisused, HalfWhereBfloat16IsNative
from auditor.rules.data.data007_input_bound import StepWaitsForInput
from auditor.rules.data.datasets import LoaderYieldsDeviceTensors
from auditor.rules.graph.kept import Backward, GraphKeptAcrossSteps, RetainedGraphNeverNeeded
from auditor.rules.mem.mem003_memory_grows import (
    Keeper,
    KeptByWorkers,
    KeptTensors,
    MemoryGrowsEveryStep,
)
from auditor.rules.mem.segments import (
    BlockPinsSegment,
    DeviceMemory,
    HostMemory,
)
from auditor.rules.num.backward import AnomalyModeLeftOn, DebugModes
from auditor.rules.num.formulas import UnstableFormula
from auditor.rules.opt.gradients import GradientsFilledWithZeros
from auditor.rules.sync.waiting import (
    AllocatorCallEveryStep,
    ExplicitSynchronize,
    ScalarReadEveryStep,
)
from msgspec import structs

from auditor.evidence.recorded.amp import Amp, OpRanges
from auditor.evidence.recorded.batches import Batches, InWorker, Loader
from auditor.evidence.recorded.lines import Lines
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.reads import Reads
from auditor.evidence.recorded.retained_graphs import NODE_CAP, RetainedGraphs, Root
from auditor.evidence.recorded.step_pattern import Trend
from auditor.evidence.recorded.steps import Step, Steps
from auditor.evidence.snapshot.state_at import (
    NeverFreed,
    NeverFreedLine,
    Segment,
    SegmentBlock,
    Snapshot,
)
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.model import Severity, Site
from auditor.patch import plan
from auditor.patch.edits import apply_edits
from auditor.recordings.schema.graph import BackwardRow, ZeroGradRow
from auditor.recordings.schema.sync import CallRow, WorkerKeptRow
from auditor.rule import NotLooked
from tests.evidence.recorded.rows import batch
from tests.rules.asking import (
    anomaly,
    ask,
    delicate,
    happened,
    holding,
    lines,
    placed,
    read,
    rescaled,
)

CPU, CUDA, REHEARSED = Machine("cpu", 8), Machine("cuda", 8), Machine("rehearsal", 8)
LINE = Site("trainer.py", 3, "step", "log(loss.item())")
MIB = 2**20


def source(text="", line=3):
    return Source({"trainer.py": "\n" * (line - 1) + text + "\n"})


def quiet(us, n=20):
    return Steps(quiet=tuple(Step(number, us) for number in range(n)))


# -- reads -----------------------------------------------------------------------------------------


def reads(on, of=20, *, device="rehearsal", **more):
    return Reads(device, of, tuple(read(LINE, step, **more) for step in on))


def weights(on, of=20):
    return [finding.severity for finding in ask(ScalarReadEveryStep(), reads(on, of))]


@pytest.mark.parametrize(
    ("on", "of", "expected"),
    [
        (range(20), 20, [None]),
        (range(10), 20, [None]),  # exactly half
        ([0, 1, 2, 4, 5, 7, 8, 9, 11], 20, [Severity.NOTE]),  # 45 %, irregular
        ([3, 7], 20, [Severity.NOTE]),  # exactly 10 %
        ([3, 7], 21, []),  # below 10 %
        (range(0, 20, 2), 20, [Severity.NOTE]),  # every 2nd
        (range(0, 45, 9), 45, [Severity.NOTE]),  # every 9th
        (range(0, 45, 10), 45, []),  # every 10th: rate-limited
        ([5, 16], 20, []),  # every 11th, as far as seen
        ([5], 10, []),  # once: nothing can be said
        (range(9), 9, [None]),  # few steps, but all
        (range(8), 9, []),  # few steps, not all
        (range(3), 3, [None]),
        (range(2), 2, []),
        ([], 0, []),
    ],
)
def test_frequency_of_a_read_decides(on, of, expected):
    assert weights(on, of) == expected


# -- calls -----------------------------------------------------------------------------------------


def calls(name, on, of=20, us=100.0):
    made = (CallRow(at=0, name=name, step=step, us=us) for step in on)
    return lines(*made, sites=(LINE,), of=of)


def sync009(name, on=range(20), us=100.0, machine=CUDA, text="torch.cuda.empty_cache()"):
    rule = AllocatorCallEveryStep()
    return list(rule.detect(calls(name, on, us=us), quiet(10_000), machine, source(text)))


def test_dropping_is_safe_only_of_counters_that_nobody_reads():
    reset = "torch.cuda.reset_peak_memory_stats()"
    (finding,) = sync009("reset_peak_memory_stats", text=reset)
    assert "synchroni" not in finding.message
    assert [edit.action for edit in finding.remedy.edits] == ["drop_statement"]
    assert finding.remedy.safe
    assert not sync009("empty_cache")[0].remedy.safe
    assert sync009("empty_cache", text="x = torch.cuda.empty_cache()")[0].remedy.edits == ()


@pytest.mark.parametrize(
    ("name", "us", "machine", "found"),
    [
        ("max_memory_allocated", 50.0, CUDA, [Severity.NOTE]),
        ("max_memory_allocated", 49.0, CUDA, []),
        ("gc.collect", 100.0, CPU, [None]),
    ],
)
def test_queries_are_notes_from_half_a_percent_collection_counts_from_one(name, us, machine, found):
    assert [finding.severity for finding in sync009(name, us=us, machine=machine)] == found
    with pytest.raises(NotLooked):
        sync009("gc.collect", us=99.0, machine=CPU)


@pytest.mark.parametrize(("machine", "price"), [(Machine("rehearsal"), None), (CUDA, 50.0)])
def test_an_explicit_wait_has_a_price_where_a_device_was_timed(machine, price):
    (finding,) = ExplicitSynchronize().detect(
        calls("synchronize", range(10)), machine, source("torch.cuda.synchronize()")
    )
    assert finding.lost_us_per_step == price


# -- input -----------------------------------------------------------------------------------------

LOADER = Loader(1, made_at=LINE, length=1000)


def input_bound(waits, us=10_000.0, loader=LOADER, machine=CPU):
    steps = tuple(Step(number, us) for number in range(len(waits)))
    batches = tuple(batch(loader.number, number, wait) for number, wait in enumerate(waits))
    return list(ask(StepWaitsForInput(), Batches("cpu", (loader,), steps, 0, batches), machine))


@pytest.mark.parametrize(
    ("waits", "us", "expected"),
    [
        ([2000.0] * 20, 10_000.0, [None]),
        ([1990.0] * 20, 10_000.0, []),  # below 20 %
        ([4000.0] * 20, 10_000.0, [Severity.ERROR]),
        ([999.0] * 20, 2000.0, []),  # half of the step, but below 1 ms
        ([1000.0] * 20, 2000.0, [Severity.ERROR]),
        ([8000.0] * 10 + [0.0] * 10, 10_000.0, [Severity.ERROR]),  # half of the steps
        ([9000.0] * 9 + [0.0] * 11, 10_000.0, [Severity.ERROR]),  # on fewer than half, and 40 % of the whole
        ([9900.0, 0.0, 0.0, 0.0] * 5, 10_000.0, [None]),  # bursts: a quarter of the whole
        ([9900.0, 0.0, 0.0, 0.0, 0.0, 0.0] * 4, 10_000.0, []),  # bursts: a sixth
        ([90_000.0] + [0.0] * 3, 100_000.0, []),  # one slow start
        ([90_000.0, 0.0, 0.0, 90_000.0], 100_000.0, [Severity.ERROR]),  # two of them are no longer one stall
    ],
)  # fmt: skip
def test_waiting_for_input(waits, us, expected):
    assert [finding.severity for finding in input_bound(waits, us)] == expected


WITH_WORKERS = [("num_workers", "4", False), ("persistent_workers", "True", False)]


@pytest.mark.parametrize(
    ("cpus", "loader", "edits"),
    [
        (8, {}, WITH_WORKERS),
        (2, {}, [("num_workers", "2", False), WITH_WORKERS[1]]),
        (1, {}, []),
        (8, {"workers": 2}, []),
        (8, {"length": None}, []),
        (8, {"made_at": None}, []),
        (8, {"open_file": True}, []),
        (8, {"draws": True}, []),
    ],
)
def test_workers_are_proposed_only_where_they_would_help(cpus, loader, edits):
    own, machine = replace(LOADER, **loader), Machine("cpu", cpus)
    (finding,) = input_bound([4000.0] * 20, loader=own, machine=machine)
    remedy = StepWaitsForInput().remedy(finding)
    assert [(edit.keyword, edit.value, edit.safe) for edit in remedy.edits] == edits


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (Batches(), "no torch DataLoader"),
        (Batches(loaders=(LOADER,), quiet=(batch(1, 0, 5000.0),)), "no step was timed"),
    ],
)
def test_without_a_loader_or_steps_input_is_not_judged(table, why):
    with pytest.raises(NotLooked, match=why):
        list(ask(StepWaitsForInput(), table, CPU))


def resident(on=range(20), machine=CUDA, set_at=None, **more):
    facts = {"devices": {"cuda:0": 1}, "sample_devices": ["cpu"], **more}
    batches = tuple(batch(1, step, **facts) for step in on)
    table = Batches("cuda", (LOADER,), (), 20, (), batches, default_set_at=set_at)
    return list(LoaderYieldsDeviceTensors().detect(table, machine))


@pytest.mark.parametrize(
    ("more", "cause", "remedy"),
    [
        ({}, "the collate function", "Let the collate function build host tensors"),
        (
            {"sample_devices": frozenset({"cuda:0"})},
            "the dataset",
            "Let the dataset return host tensors",
        ),
        (
            {"default_device": "cuda:0"},
            "torch.set_default_device",
            "Do not set the default device to CUDA around data loading",
        ),
    ],
)
def test_device_resident_batches_and_their_cause(more, cause, remedy):
    (found,) = resident(**more)
    assert found.message.partition("put there by ")[2] == cause
    assert found.remedy.text.partition(",")[0] == remedy


def test_device_resident_batches_on_half_of_the_steps():
    (found,) = resident(default_device="cuda:0", set_at=replace(LINE, line=1))
    assert found.site.line == 1
    assert len(resident(range(10))) == 1
    assert resident(range(9)) == resident(devices=frozenset({"cpu"})) == []
    with pytest.raises(NotLooked, match="no CUDA device"):
        resident(machine=CPU)


# -- graphs ----------------------------------------------------------------------------------------


def root(holdings, of=None, site=LINE):
    holdings = tuple(structs.replace(held, step=number) for number, held in enumerate(holdings))
    return Root("losses[*]", site, holdings, len(holdings) if of is None else of)


def graph001(*roots):
    return list(
        GraphKeptAcrossSteps().detect(
            RetainedGraphs(roots), Backward(), source("kept.append(loss)", LINE.line)
        )
    )


def backwards(*calls, of=20, **more):
    return Backward(Lines[BackwardRow](calls, of, "loud"), **more)


def backward_at(site, step, **more):
    return placed(BackwardRow(**({"at": 0, "step": step, "n": 1, "retain": True} | more)), site)


def test_the_line_that_retains_what_a_state_holds_is_a_place_of_it():
    kept = Site("trainer.py", 9, "step", "loss.backward(retain_graph=True)")
    backward = backwards(backward_at(kept, 1), of=2, reused=frozenset({("trainer.py", 9)}))
    held = RetainedGraphs((root(growing(walked=True)),))
    (finding,) = GraphKeptAcrossSteps().detect(held, backward, source("state = h", LINE.line))
    assert [(each.site.line, each.per_step) for each in finding.places] == [(3, 1.0), (9, 1.0)]
    assert "line 9, `loss.backward(retain_graph=True)`, keeps its graph for that" in finding.message
    idle = RetainedGraphs((root(growing()),))
    (finding,) = GraphKeptAcrossSteps().detect(idle, backward, source("state = h", LINE.line))
    assert finding.places == ()


def test_gradients_that_nothing_differentiates():
    facts = {"retain": False, "create": True, "followed": True}
    calls = tuple(backward_at(LINE, step, **facts) for step in range(3))
    code = source("g = grad(y, x, create_graph=True, retain_graph=True)")

    def found(backward):
        return list(RetainedGraphNeverNeeded().detect(backward, code, Configs()))

    (finding,) = found(backwards(*calls, of=3))
    assert "the gradients in 3 calls, but nothing differentiated it" in finding.message
    (edit,) = RetainedGraphNeverNeeded().remedy(finding).edits
    assert (edit.action, edit.keyword, edit.safe) == ("drop_keyword", "create_graph", False)
    assert found(backwards(*calls[:2], of=3)) == []
    assert found(backwards(*calls, of=3, differentiated=frozenset({("trainer.py", 3)}))) == []
    calls[2].followed = False
    assert found(backwards(*calls, of=3)) == []


def growing(steps=12, by=1, **more):
    return [holding(0, tensors=1 + by * step, nodes=100, **more) for step in range(steps)]


def each(make, steps=12):
    return [make(step) for step in range(steps)]


def full(step, **more):
    return holding(0, carried=1, oldest=step, **{"nodes": NODE_CAP, **more})


def bounded(number, oldest=3):
    return holding(0, tensors=number, carried=number - 1, oldest=oldest)


SIZES = [100, 140, 90, 160, 170, 150, 180, 120, 190, 200, 130, 210]
WARNING, NOTE = Severity.WARNING, Severity.NOTE


@pytest.mark.parametrize(
    ("holdings", "severities"),
    [
        (each(lambda n: holding(0, tensors=1 + min(n, 6)), 11), [None]),  # six of ten steps
        (each(lambda n: holding(0, tensors=1 + min(n, 5)), 11), []),
        (each(lambda n: holding(0, nodes=100 + 10 * n)), [WARNING]),  # behind one variable
        (each(lambda n: holding(0, nodes=100 + 10 * n, held_bytes=n * MIB)), [None]),
        (each(full), [WARNING]),  # too long to count
        (each(lambda n: full(n, nodes=100)), []),
        (each(lambda n: holding(0, nodes=SIZES[n], held_bytes=SIZES[n])), []),  # overwritten
        ([holding(0, nodes=100)] * 12, []),
        ([holding(0, nodes=NODE_CAP)] * 12, []),
        ([bounded(4)] * 12, [NOTE]),
        ([bounded(2, 1)] * 12, []),
        (each(lambda n: holding(0, tensors=1, carried=int(n > 0), oldest=n)), []),  # made before
        (each(lambda n: bounded(1 + n % 6, n % 6)), [NOTE]),  # a sawtooth
        (each(lambda n: bounded(4, 2 * (n % 2))), []),  # not most steps
    ],
)
def test_what_holds_graphs_from_step_to_step(holdings, severities):
    assert [finding.severity for finding in graph001(root(holdings))] == severities


def test_sum_whose_graph_is_too_long_to_count_is_priced_without_its_first_value():
    heavy = each(lambda n: full(n, held_bytes=50 * MIB * (n > 0) + n * MIB))
    (priced,) = graph001(root(heavy))
    assert (priced.severity, priced.lost_bytes) == (None, MIB)


def test_growth_is_not_claimed_from_few_steps_or_a_part_of_them():
    assert graph001(root(growing(2))) == graph001() == graph001(root(growing(6), of=12)) == []


def test_detaching_a_walked_graph_is_not_safe():
    def safe(**more):
        (finding,) = graph001(root(growing(**more)))
        return GraphKeptAcrossSteps().remedy(finding).safe

    assert safe()
    assert not safe(walked=True)


def test_retained_graph():
    rule, text = RetainedGraphNeverNeeded(), "loss.backward(retain_graph=True)"

    def found(times=3, reused=frozenset(), text=text, **more):
        facts = {"held_bytes": MIB, **more}
        calls = tuple(backward_at(LINE, step, **facts) for step in range(times))
        return list(rule.detect(backwards(*calls, reused=reused), source(text), Configs()))

    (finding,) = found()
    assert (finding.lost_bytes, finding.basis) == (MIB, "estimated")
    remedy = rule.remedy(finding)
    (edit,) = remedy.edits
    assert (remedy.safe, edit.call, edit.keyword) == (True, "backward", "retain_graph")
    assert found(times=2) == found(create=True) == found(retain=False) == []
    assert found(reused=frozenset({("trainer.py", 3)})) == []
    (elsewhere,) = found(text="self.manual_backward(loss, **options)")
    assert rule.remedy(elsewhere).edits == ()
    assert list(rule.detect(Backward(), source(), Configs())) == []


def test_workers_that_would_ask_for_cuda_are_an_error_without_any_cuda():
    worker = InWorker(Loader(0, workers=2, dataset="Held"), LINE)
    (finding,) = LoaderYieldsDeviceTensors().detect(Batches(in_worker=worker), CPU)
    assert (finding.site, finding.severity, finding.seen_on) == (LINE, Severity.ERROR, "rehearsal")
    assert "2 worker processes of the loader would use CUDA" in finding.message
    assert "Let the dataset return host tensors" in LoaderYieldsDeviceTensors().remedy(finding).text


# -- memory ----------------------------------------------------------------------------------------


def mem003(device=(), host=(), held=(), kept=(), machine=None, keepers=(), usable=0, workers=()):
    memory = DeviceMemory(
        tuple(Step(number, 1.0, allocated=round(value)) for number, value in enumerate(device))
    )
    return list(
        MemoryGrowsEveryStep().detect(
            memory,
            HostMemory(Trend(tuple(host)), usable),
            RetainedGraphs(held),
            NeverFreed(kept),
            keepers=KeptTensors(keepers),
            workers=KeptByWorkers(workers),
            machine=machine or (CUDA if device else CPU),
        )
    )


STEADY = [100 * MIB + step * MIB for step in range(20)]


@pytest.mark.parametrize(
    "device",
    [
        [100 * MIB] * 20,
        [100 * MIB + step * MIB // 20 for step in range(20)],  # below 1 % of the peak and 1 MiB
        [2000 * MIB + step * MIB for step in range(20)],  # below 1 % of the peak alone
        [100 * MIB + min(step, 8) * MIB for step in range(20)],  # levels off
        [100 * MIB + (step % 5) * 10 * MIB for step in range(20)],  # saw-tooth
        [100 * MIB, *[150 * MIB] * 19],  # one jump
        [100 * MIB + step * MIB for step in range(7)],  # too few steps
    ],
)
def test_no_growth_on_the_device(device):
    assert mem003(device=device) == []


def keeper(per_step, *, devices=("cuda",), steps=20, **more):
    numbers = tuple(range(1, steps + 1))
    site, nbytes = Site("trainer.py", 7, "step"), tuple(n * per_step for n in numbers)
    return replace(Keeper("self.seen[*]", site, numbers, nbytes, devices), **more)


def test_a_variable_that_some_line_cuts_is_a_note():
    (cut,) = mem003(device=STEADY, keepers=(keeper(MIB, bounded=True, cut=True),))
    assert cut.severity is Severity.NOTE
    (never,) = mem003(device=STEADY, keepers=(keeper(MIB),), machine=REHEARSED)
    assert never.severity is None and "nothing ever shrinks" in never.message


MISSED = WorkerKeptRow(root="seen", tensors=[], nbytes=[], beyond=True, workers=2)


@pytest.mark.parametrize(
    ("more", "severity"),
    [({}, Severity.NOTE), ({"bounded": True}, Severity.NOTE), ({"again": MISSED}, None)],
)
def test_a_container_of_a_loaders_workers_is_a_finding_of_its_own(more, severity):
    sizes = tuple(range(0, 20 * MIB, MIB))
    held = Keeper("self.seen[*]", LINE, tuple(range(20)), sizes, ("cpu",), **more)
    (finding,) = mem003(host=[100 * MIB] * 20, workers=(held,))
    assert finding.site == LINE and finding.severity == severity and finding.lost_bytes == MIB
    assert "each worker process holds its own" in finding.message and finding.basis == "estimated"
    assert not mem003(host=[100 * MIB] * 20, workers=(replace(held, cut=True),))


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("self.seen.append(loss)", "collections.deque(maxlen=...)"),
        ("self.cache[key] = features", "remove its oldest keys"),
        ("self.cache.setdefault(key, features)", "remove its oldest keys"),
        ("same = self.cache[key] == features", "collections.deque(maxlen=...)"),
        ("@functools.cache", "functools.lru_cache(maxsize=...)"),
        ("load = functools.lru_cache(None)(read)", "functools.lru_cache(maxsize=...)"),
    ],
)
def test_how_a_container_is_limited(text, bound):
    held = keeper(MIB, site=Site("trainer.py", 7, "step", text))
    (finding,) = mem003(device=STEADY, keepers=(held,))
    assert f"Limit self.seen[*] ({bound}, or clear" in finding.remedy.text


def test_growth_of_the_host_says_when_it_is_full():
    each = keeper(32 * 1024, devices=("cpu",))
    host = [*[3072 * MIB] * 19, 2048 * MIB]
    (one,) = mem003(host=host, keepers=(each,), usable=4096 * MIB)
    assert one.message.endswith(
        "; the host's 4 GiB would be full after 66,000 more steps at this rate"
    )
    assert "would be full" not in mem003(host=host, keepers=(each,), usable=2048 * MIB)[0].message


@pytest.mark.parametrize(("own", "line"), [(MIB // 2, 7), (MIB // 2 - 1, 3)])
def test_the_variable_that_holds_half_of_the_growth_is_named(own, line):
    stay = NeverFreedLine(LINE, (1, 1, 1), 9)
    held = keeper(own, cut=True)
    (one,) = mem003(device=STEADY, kept=(stay,), keepers=(held,))
    assert one.site.line == line


def test_growth_is_not_judged_where_no_memory_was_measured():
    with pytest.raises(NotLooked, match="memory of no step"):
        mem003(device=[])


def test_host_growth_must_be_large():
    assert len(mem003(host=[step * 2 * MIB for step in range(17)])) == 1  # 32 MiB
    assert mem003(host=[step * 2 * MIB for step in range(16)]) == []


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        (([1.0] * 10 + [-1.99]) * 5, True),  # a fall takes back a fifth
        (([1.0] * 10 + [-2.01]) * 5, False),
        ([1.04, 1.04, 1.04, 12.88] * 8, True),  # one step of four adds nearly all
        ([0.96, 0.96, 0.96, 13.12] * 8, False),
    ],
)
def test_growth_of_the_host_that_comes_and_goes_or_jumps_is_silent(changes, found):
    host = [0.0]
    for change in changes:
        host.append(host[-1] + change * MIB)
    assert bool(mem003(host=host)) is found
    assert len(mem003(host=host, keepers=(keeper(4 * MIB, devices=("cpu",)),))) == 1


def test_growth_of_the_device_is_told_at_the_line_whose_blocks_stay():
    stay = NeverFreedLine(LINE, (1, 1, 1), 9)
    (one,) = mem003(device=STEADY, kept=(stay,), machine=REHEARSED)
    assert "9 blocks allocated here were never freed" in one.message
    assert one.severity is Severity.NOTE  # its few steps cannot tell it from what fills up


def allocator(peak_mib, reserved_mib, **more):
    step = Step(0, 1.0, allocated=0, reserved=reserved_mib * MIB, peak_allocated=peak_mib * MIB)
    return DeviceMemory((replace(step, **more),))


def segment(free_mib, live_mib=1, site=LINE, **more):
    blocks = (
        SegmentBlock(live_mib * MIB, live=True, site=site),
        SegmentBlock(free_mib * MIB, live=False),
    )
    return Segment((free_mib + live_mib) * MIB, blocks, **more)


def mem005(segments, memory=None, **more):
    return list(
        BlockPinsSegment().detect(
            memory or allocator(700, 1024), Snapshot(tuple(segments), **more), CUDA
        )
    )


@pytest.mark.parametrize(
    ("segments", "memory", "at_oom", "found"),
    [
        ([segment(64)], (700, 1024), False, 1),
        ([segment(63)], (700, 1024), False, 0),
        ([segment(64)], (1000, 1024), False, 0),
        ([segment(64)], (1000, 1024), True, 1),
        ([segment(64, expandable=True)], (700, 1024), False, 0),
        ([Segment(99 * MIB, (SegmentBlock(99 * MIB, live=False),))], (700, 1024), False, 0),  # nothing pins
        ([segment(64, site=replace(LINE, line=n)) for n in range(1, 6)], (700, 1024), False, 3),
    ],
)  # fmt: skip
def test_pins_are_shown_only_where_memory_is_short_or_fragmented(segments, memory, at_oom, found):
    assert len(mem005(segments, allocator(*memory), at_oom=at_oom)) == found
    with pytest.raises(NotLooked, match="before the allocation history"):
        mem005([segment(64, site=None)])


# -- modes and optimizers --------------------------------------------------------------------------


def noisy(us, n=12):
    return tuple(Step(number, us + (number % 4)) for number in range(n))


def num009(on, of=12, steps=None, text="with torch.autograd.detect_anomaly():", site=LINE):
    modes = DebugModes(of, tuple(anomaly(step, site) for step in on))
    rule = AnomalyModeLeftOn()
    found = list(rule.detect(modes, steps or Steps(), source(text + "\n  pass"), Configs()))
    return found, [rule.remedy(finding) for finding in found]


@pytest.mark.parametrize("off", [(), noisy(2000.0, 4), noisy(5000.0), noisy(5001.0), noisy(9000.0)])
def test_anomaly_price_is_not_claimed_without_a_difference(off):
    ((finding,), _) = num009(range(12), steps=Steps(quiet=noisy(5000.0), anomaly_off=off))
    assert (finding.lost_us_per_step, finding.basis) == (None, "none")


@pytest.mark.parametrize(
    ("on", "of", "found"),
    [(range(6), 12, 1), (range(5), 12, 0), ([3], 12, 0), ([0], 1, 0), ([], 0, 0)],
)
def test_anomaly_mode_on_half_of_the_steps(on, of, found):
    assert len(num009(on, of=of)[0]) == found
    ((unknown,), (remedy,)) = num009(range(12), site=None)
    assert unknown.site is None and remedy.edits == ()


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("trainer = Trainer(detect_anomaly=True)", "trainer = Trainer(detect_anomaly=False)"),
        ("trainer = Trainer(detect_anomaly=debug)", None),
        ("a, b = Trainer(detect_anomaly=True), Trainer(detect_anomaly=True)", None),
    ],
)
def test_anomaly_mode_that_a_framework_switched_on_is_at_the_argument_that_asks_for_it(text, fixed):
    where, by = replace(LINE, line=9), "framework/loop.py:fit"
    modes = DebugModes(12, tuple(anomaly(step, where, by) for step in range(12)))
    (finding,) = AnomalyModeLeftOn().detect(modes, Steps(), source(text), Configs())
    assert finding.site.line == (9 if "a, b" in text else LINE.line)
    assert ("switched on inside", "framework/loop.py:fit") in finding.facts
    remedy = AnomalyModeLeftOn().remedy(finding)
    edits = remedy.edits
    decided = "=debug" in text
    assert (remedy.refused == "`detect_anomaly` is decided by `debug`: change it there") is decided
    assert ("detect_anomaly=debug, which was True" in finding.message) is decided
    made = [
        file.after.decode().strip()
        for file in plan(edits, lambda path: source(text).texts[path].encode()).files
    ]
    assert made == ([] if fixed is None else [fixed])


def cleared(step, **more):
    return ZeroGradRow(**({"at": 0, "n": 1, "set_to_none": False, "step": step} | more))


def zero_filled(*given, text=""):
    table = lines(*given, sites=(LINE,), pass_name="loud")
    return list(ask(GradientsFilledWithZeros(), table, source(text)))


def test_zero_filled_gradients():
    def found(text="optimizer.zero_grad(set_to_none=False)", **more):
        return zero_filled(*(cleared(step, **more) for step in range(10)), text=text)

    (finding,) = found()
    assert finding.remedy.edits[0].keyword == "set_to_none"
    assert not finding.remedy.edits[0].safe
    assert found(set_to_none=True) == []
    assert found(text="optimizer.zero_grad(False)")[0].remedy.edits == ()


def test_gradients_that_are_filled_by_hand():
    (finding,) = zero_filled(*(cleared(step, owner="Tensor") for step in range(20)))
    assert finding.message.startswith(
        "zero_() fills gradients with zeros, to which the next backward"
    )


@pytest.mark.parametrize(
    "line", ["loss.backward(retain_graph = keep)", "loss.backward(None, keep)"]
)
def test_graph002_a_switch_of_the_users_is_changed_where_it_is_set(line):
    table = backwards(*(backward_at(Site("t.py", 3, "", line), step) for step in range(5)))
    rule = RetainedGraphNeverNeeded()

    def found(keep):
        text = f"keep = {keep}\n\n{line}\n"
        (finding,) = rule.detect(table, Source({"t.py": text}), Configs())
        return finding.message, rule.remedy(finding)

    message, remedy = found("True")
    assert "retain_graph=keep, which was True (set at t.py:1: `keep = True`)" in message
    (edit,) = remedy.edits
    assert (edit.site.line, edit.action, edit.value) == (1, "set_constant", "False")
    assert not edit.safe
    _, remedy = found("epochs > 3")
    decided = "`retain_graph` is decided by `keep`, which is set at t.py:1"
    assert remedy.edits == () and remedy.refused.startswith(decided)


def test_opt002_a_switch_of_the_users_is_changed_where_it_is_set():
    text = "optimizer.zero_grad(set_to_none=args.drop)"
    (finding,) = zero_filled(*(cleared(step) for step in range(20)), text=text)
    assert "set_to_none=args.drop, which was False" in finding.message
    remedy = GradientsFilledWithZeros().remedy(finding)
    assert remedy.edits == ()
    assert remedy.refused == "`set_to_none` is decided by `args.drop`: change it there"


HALF = "import torch\nscaler = torch.amp.GradScaler()\nwith torch.autocast('cuda'):\n    pass\n"


def half(capability=9, dtype="float16", scaled=10, text=HALF):
    events = [happened("autocast", Site("a.py", 3), step, dtype) for step in range(10)]
    events += [happened("scale", Site("a.py", 5), step) for step in range(scaled)]
    rule, machine = HalfWhereBfloat16IsNative(), Machine("cuda", 8, capability)
    found = rule.detect(Amp(10, tuple(events)), machine, Source({"a.py": text}))
    return [rule.remedy(each).edits for each in found]


@pytest.mark.parametrize(
    ("capability", "dtype", "scaled", "expected"),
    [(8, "float16", 5, 1), (7, "float16", 9, 0), (8, "float16", 4, 0), (8, "bfloat16", 9, 0)],
)
def test_float16_on_each_generation(capability, dtype, scaled, expected):
    found = half(capability, dtype, scaled)
    assert len(found) == expected
    for edits in found:  # the scaler goes with the dtype, or neither does
        changed = apply_edits(HALF.encode(), edits).decode()
        assert "GradScaler(enabled=False)" in changed
        assert "autocast('cuda', dtype=torch.bfloat16)" in changed
    with pytest.raises(NotLooked):
        half(0)


@pytest.mark.parametrize("made", ["GradScaler(enabled=use)", "make_scaler()"])
def test_a_dtype_whose_scaler_cannot_be_changed_is_left(made):
    assert half(text=HALF.replace("GradScaler()", made)) == [()]


@pytest.mark.parametrize(
    ("line", "more", "expected"),
    [
        ("a = torch.sqrt(x)", {}, "a = torch.sqrt(x + 1e-12)"),
        ("a = torch.sqrt(x if y else z)", {}, "a = torch.sqrt((x if y else z) + 1e-12)"),
        ("a = x.pow(2).sum().sqrt()", {}, "a = x.pow(2).sum().add(1e-12).sqrt()"),
        ("a = torch.sqrt(x) + torch.sqrt(y)", {}, None),
        ("a = math.sqrt(x)", {}, None),
        ("a = sqrt(x)", {}, None),
        ("a = torch.sqrt(x, out=y)", {}, None),
        ("a = torch.sqrt(x)", {"low": -1.0}, None),
        ("a = torch.sqrt(x)", {"dtype": "float16"}, None),
        ("a = x ** 0.5", {"op": "pow", "scalar": 0.5}, None),
    ],
)
def test_the_epsilon_that_a_root_gets(line: str, more: dict, expected: str | None) -> None:
    facts = {"op": "sqrt", "dtype": "float32", "low": 0.0, "high": 4.0, **more}
    call = delicate(Site("a.py", 1, "", line), "gradient", **facts)
    rule = UnstableFormula()
    (finding,) = rule.detect(OpRanges(3, (call,)), Source({"a.py": line + "\n"}))
    edits = rule.remedy(finding).edits
    changed = apply_edits((line + "\n").encode(), edits).decode().strip() if edits else None
    assert changed == expected


def test_a_line_whose_formula_is_reported_is_not_reported_again() -> None:
    site = Site("a.py", 1)
    call = delicate(site, "function", "log", "float32", low=0.0, high=1.0, feed="sigmoid")
    calls = (call, delicate(site, "gradient", "log", "float32", low=0.0, high=1.0))
    (finding,) = UnstableFormula().detect(OpRanges(3, calls), Source())
    assert "log(sigmoid(x))" in finding.message


def lost(overflowed=3):
    return delicate(Site("a.py", 9), "loss", "backward", "float32", n=3, overflowed=overflowed)


@pytest.mark.parametrize(
    ("op", "low", "more", "makes"),
    [
        ("log", -0.1, {}, "NaN"),
        ("log", 0.0, {}, "-inf"),
        ("log", 1e-9, {}, ""),
        ("log1p", -1.1, {}, "NaN"),
        ("log1p", -0.9, {}, ""),
        ("exp", -5.0, {}, ""),
        ("log", float("nan"), {}, ""),
        ("log", None, {}, ""),
        ("log", -0.1, {"guarded": True}, ""),
        ("log", -0.1, {"library": "torch/optim/adam.py:step"}, ""),
    ],
)
def test_logarithms_outside_their_range_where_no_loss_is_finite(op, low, more, makes) -> None:
    call = delicate(Site("a.py", 1), "function", op, "float32", n=3, low=low, high=2.0, **more)
    found = list(UnstableFormula().detect(OpRanges(3, (call, lost())), Source()))
    assert [f"which become {makes};" in each.message for each in found] == ([True] if makes else [])
    assert all(each.severity is Severity.ERROR for each in found)
    assert not list(UnstableFormula().detect(OpRanges(3, (call, lost(2))), Source()))


@pytest.mark.parametrize(
    ("every", "skips", "found"),
    [
        (1, (0, 1, 2), False),
        (4, (0, 1, 2), False),
        (4, (0, 1, 6), True),
        (0.5, (0, 1, 2, 12), True),
    ],
    ids=["at first", "at first, accumulating", "late, accumulating", "late, two in a step"],
)
def test_skipped_steps_count_only_where_they_go_on(every, skips, found):
    full, half = 2.0**16, 2.0**15
    updates = tuple(
        rescaled(Site("a.py", 5), int(n * every), full, half if n in skips else full)
        for n in range(13)
    )
    said = list(GradScalerMisused().detect(Amp(50, updates=updates), Source()))
    assert [finding.message.startswith("GradScaler skipped") for finding in said] == [True] * found
