"""What rules about memory, time and norms say, on tables made by hand."""

from dataclasses import replace

import pytest
from auditor.rules.ckpt.files import SaveBlocksStep
from auditor.rules.mem.mem003_memory_grows import _formed
from auditor.rules.mem.peaks import Peak, PeakHeldByFewLines, PeakHolders, RanOutOfMemory
from auditor.rules.mem.varying_sizes import Varying, VaryingSizes, VaryingSizesReallocate
from auditor.rules.num.backward import GradientNorms, GradientsExplode, NormSeries
from auditor.rules.opt.gradients import GradientsPileUp
from auditor.rules.opt.rows import UnclearedRow
from auditor.rules.sync.driver_calls import (
    DriverAllocationsInSteadyState,
    DriverCalls,
    SegmentRequests,
    TraceDriver,
)

from auditor.evidence.recorded.lines import TrainingLoop
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.snapshot.state_at import Holder, NeverFreed
from auditor.evidence.snapshot.what_if import OutOfMemory
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.model import Severity, Site
from auditor.recordings.schema.data import SaveRow
from tests.rules.asking import ask, lines, rows

MIB = 1 << 20
CPU, CUDA = Machine("cpu", 8), Machine("cuda", 8)


def holders(*sizes):
    return tuple(
        Holder(Site("train.py", n, "f"), size, 1, (f"stack {n}",), 0, 0)
        for n, size in enumerate(sizes, 1)
    )


def peaks(allocated, *held, timed=True):
    peak = Peak(1, allocated, held, timed=timed)
    return list(ask(PeakHeldByFewLines(), PeakHolders((peak,)), CUDA))


@pytest.mark.parametrize(
    ("allocated", "first", "found"),
    [
        (512 * MIB, 52 * MIB, 1),
        (512 * MIB - 1, 52 * MIB, 0),
        (1000 * MIB, 100 * MIB, 1),
        (1000 * MIB, 100 * MIB - 1, 0),
    ],
)
def test_a_line_that_holds_a_tenth_of_a_large_peak(allocated, first, found):
    held = holders(first, *[MIB] * 11)
    findings = peaks(allocated, *held)
    assert len(findings) == found
    for finding in findings:
        assert finding.site.line == 1 and finding.message.startswith("at the peak ")
        said = f"GPU 1; tensors created here hold {first // MIB} MiB of that (10%)"
        assert said in finding.message
        assert len(finding.facts) == 11  # ten lines and the stack
        assert finding.facts[-1] == ("stack of the largest block", "stack 1")
        (later,) = peaks(allocated, *held, timed=False)
        assert later.message.startswith("when the snapshot was taken ")


OOM = OutOfMemory(
    True, 1, 20 * MIB, 32 * MIB, 5 * MIB, 300 * MIB, 290 * MIB, 4 * MIB, Site("train.py", 9)
)


def test_an_error_in_numbers():
    table = replace(OOM, holders=holders(*[9 * MIB] * 12), why_no_what_if="no history")
    (finding,) = ask(RanOutOfMemory(), table, CUDA, Configs())
    assert finding.message.startswith(
        "memory ran out: 20 MiB were requested (the allocator asks the device for a segment of "
        "32 MiB to hold it), 290 MiB of 300 MiB reserved on GPU 1 were in use and the largest free "
        "piece was 4 MiB: "
    )
    assert finding.message.endswith("most is held by tensors created at train.py:1 (9 MiB)")
    assert finding.facts[:5] == (
        ("requested", "20 MiB"),
        ("segment to hold it", "32 MiB, the size in torch's message"),
        ("free inside reserved", "10 MiB"),
        ("largest free piece", "4 MiB"),
        ("free on the device", "5 MiB"),
    )
    assert len(finding.facts) == 5 + 10 + 1 and finding.facts[-1] == (
        "other settings",
        "no history",
    )


@pytest.mark.parametrize(
    ("change", "first"),
    [({"tried": 20 * MIB}, 0), ({"tried": None}, 0), ({"requested": None}, 1)],
    ids=str,
)
def test_what_is_not_known_of_an_error_is_not_said(change, first):
    (finding,) = ask(RanOutOfMemory(), replace(OOM, device_free=None, **change), CUDA, Configs())
    facts = ["requested", "free inside reserved", "largest free piece"][first:]
    assert [label for label, _ in finding.facts] == facts
    assert "segment of" not in finding.message and "most is held" not in finding.message
    rehearsed = Machine("rehearsal")
    (simulated,) = ask(RanOutOfMemory(), replace(OOM, **change), rehearsed, Configs())
    assert simulated.message.startswith("in the rehearsal memory ran out: ")
    assert simulated.basis == "estimated"


MANY = Varying(
    Site("train.py", 9),
    (1000, 1013, 1529, 1700, 2000, 1000),
    scale=20.0,
    reserved=1000 * MIB,
    fixed=900 * MIB,
)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, True),
        ({"scale": 1.0}, True),
        ({"sizes": (1700, 2000, 1000, 1000, 1013, 1000)}, False),  # two in the second half
        ({"sizes": (1000, 1013, 1029, 1050, 1099, 1000)}, False),  # 1.099 times the smallest
        ({"sizes": (1000, 1100, 1200, 1300, 1700, 1500)}, False),  # a grid of eight
        ({"sizes": (1000, 1100, 1200, 1300, 1800, 1500)}, True),  # of nine
        ({"grows": True}, False),
        ({"fixed": 900 * MIB + 1}, False),
        ({"reserved": 0, "fixed": 0}, False),
    ],
    ids=str,
)
def test_steps_with_sizes_of_their_own(change, found):
    table = VaryingSizes(6, replace(MANY, **change))
    findings = list(ask(VaryingSizesReallocate(), table))
    assert len(findings) == found
    for finding in findings:
        note = change.get("scale") != 1.0
        assert finding.severity is (Severity.NOTE if note else None)
        assert finding.lost_bytes == (None if note else 100 * MIB)


@pytest.mark.parametrize(
    ("norms", "said"),
    [
        ([10.0 ** (n / 4) for n in range(20)], "from 2.37 to 2.37e+04"),
        ([10.0 ** (n / 10) for n in range(20)], ""),  # 1.6 decades
        ([10.0 ** min(n / 4, 2.5) for n in range(20)], ""),  # levels off
    ],
)
def test_norms_that_grow(norms, said):
    table = GradientNorms((NormSeries(None, tuple(enumerate(norms))),))
    found = list(ask(GradientsExplode(), table))
    assert [said in each.message for each in found] == [True] * bool(said)
    if found:
        (finding,) = found
        assert finding.message.startswith("the gradient norm grew 10,000-fold in 19 steps")
        assert finding.message.endswith(", 100-fold in the second half")
        assert (finding.steps, finding.per_step) == (20, 1.0)


def test_norms_that_ended_in_infinity():
    norms = [*(10.0**n for n in range(12)), float("inf"), 1.0]
    series = NormSeries(None, tuple(enumerate(norms)), clipped=True)
    rule = GradientsExplode()
    (finding,) = ask(rule, GradientNorms((series,)))
    assert finding.message.endswith("1e+06-fold in the second half; then it was not finite")
    assert "1e+10-fold" in finding.message and finding.steps == 12
    assert "Clipping only" in rule.remedy(finding).text


WARMED = "import torch\nlr = LambdaLR(optimizer, lambda n: n + 1)\n"


@pytest.mark.parametrize(
    ("text", "first", "most", "base", "line"),
    [
        (WARMED, 0.1, 0.4, 0.1, 2),
        (WARMED, 0.1, 0.39, 0.1, 9),
        (WARMED, 0.01, 0.1, 0.1, 9),  # a warm-up to the rate of the optimizer
        (WARMED, 0.1, 0.4, 0.0, 9),  # raised by hand
        (WARMED, 0.2, 0.5, 0.1, 9),
        (WARMED + "two = OneCycleLR(optimizer, 1.0)\n", 0.1, 0.4, 0.1, 9),
        (WARMED + "two = LambdaLR(other, str)\n", 0.1, 0.4, 0.1, 9),
        ("schedule = CosineAnnealingLR(optimizer, 9)\n", 0.1, 0.4, 0.1, 9),
    ],
)
def test_num014_names_the_scheduler_that_raised_the_rate(text, first, most, base, line):
    norms = tuple(enumerate(10.0 ** (n / 4) for n in range(20)))
    rates = (first, *((first + most) / 2 for _ in range(18)), most)
    series = NormSeries(Site("a.py", 9), norms, rates=rates, base=base)
    rule = GradientsExplode()
    (finding,) = ask(rule, GradientNorms((series,)), Source({"a.py": text}))
    assert finding.site.line == line
    named = line == 2
    assert ("raised the learning rate from 0.1 to 0.4, 4 times" in finding.message) == named
    assert ("end at 1" in rule.remedy(finding).text) == named


def allocations(*per_step, **more):
    number = sum(per_step)
    calls = DriverCalls("cudaMalloc", number, 10.0 * number, per_step, (6.0,) * len(per_step))
    table = TraceDriver(**{"marked": True, "allocator": (calls,), **more})
    return list(DriverAllocationsInSteadyState().detect(table, SegmentRequests(), NeverFreed()))


@pytest.mark.parametrize(
    ("per_step", "severity", "seen"),
    [
        ((9, 1, 1, 0, 0), [None], 2),
        ((9, 1, 1, 0, 0, 0), [Severity.NOTE], 2),
        ((9, 1, 0, 0), [], 0),  # once after the first step may be a warm-up
        ((9, 0, 0), [], 0),
    ],
)
def test_memory_from_the_driver_after_the_first_step(per_step, severity, seen):
    found = allocations(*per_step)
    assert [each.severity for each in found] == severity
    for each in found:
        of = len(per_step) - 1
        assert each.message == (
            f"cudaMalloc on {seen} of the {of} steps after the first: device memory comes from the "
            "driver again"
        )
        assert (each.steps, each.per_step, each.lost_us_per_step) == (seen, 2 / of, 6.0)


# -- saves, piled gradients, gaps ------------------------------------------------------------------


SITES = Site("train.py", 3), Site("train.py", 90)


def saved(us, number, step_us, *more):
    facts = {"us": us, "path": "a.pt", "replaced": False, "bytes": MIB, "stack": [1, 0]}
    made = (SaveRow(at=0, step=step, **facts) for step in range(number))
    return list(
        ask(SaveBlocksStep(), lines(*made, sites=SITES, of=10, step_us=step_us), CPU, *more)
    )


@pytest.mark.parametrize(
    ("us", "number", "found"), [(50.0, 2, True), (49.0, 2, False), (500.0, 1, False)]
)
def test_saves_that_take_a_twentieth_of_the_steps(us, number, found):
    assert bool(saved(us, number, 2000.0)) is found


def test_a_save_and_the_call_in_the_loop():
    (finding,) = saved(50.0, 2, 2000.0)
    assert finding.message == "torch.save takes 5.0% of the step time: 50 us on 2 of 10 steps"
    assert (finding.per_step, finding.lost_us_per_step, finding.basis) == (0.2, 10.0, "measured")
    assert finding.places == ()
    (finding,) = saved(50.0, 2, 2000.0, TrainingLoop(one_step=True))
    assert [place.site.line for place in finding.places] == [3, 90]


@pytest.mark.parametrize(
    ("made", "edited"),
    [
        ("opt = SGD(params)", True),
        ("opt = torch.optim.SGD(params)", True),
        ("opt = make(params)", False),
        ("opt = SGD", False),
        ("other = SGD(params)", False),
    ],
)
def test_gradients_are_cleared_of_what_was_made_as_that_optimizer(made, edited):
    source = Source({"train.py": f"{made}\nloss.backward()\nopt.step()\n"})
    row = UnclearedRow(at=0, backward_at=1, optimizer="SGD", steps=5, piled=4)
    piled = rows(row, sites=(Site("train.py", 3), Site("train.py", 2)))
    rule = GradientsPileUp()
    (finding,) = ask(rule, piled, source)
    assert (finding.steps, finding.per_step) == (4, 1.0)
    assert [edit.value for edit in rule.remedy(finding).edits] == ["opt.zero_grad()"] * edited


@pytest.mark.parametrize(
    ("steps", "piled", "found"), [(4, 3, 1), (3, 2, 0), (5, 3, 0), (5, 5, 0), (9, 8, 1)]
)
def test_gradients_pile_up_on_every_step_but_the_first(steps, piled, found):
    row = UnclearedRow(at=None, backward_at=None, optimizer="SGD", steps=steps, piled=piled)
    findings = list(ask(GradientsPileUp(), rows(row)))
    assert [(each.site, each.steps) for each in findings] == [(None, piled)] * found


CACHE = """class Rows:
    def __getitem__(self, i):
        key = i
        key = (i, random())
        if key not in self.known:
            self.known[key] = load(i)
        return self.known[key]
"""


@pytest.mark.parametrize(
    ("line", "at"),
    [
        ("            self.known[key] = load(i)", 4),
        ("            self.known[i] = load(i)", None),
        ("            self.known.append(load(i))", None),
        ("            self.known[i, key] = load(i)", None),
    ],
)
def test_where_the_key_is_formed_by_which_a_line_stores(line, at):
    source = Source({"t.py": CACHE.replace("            self.known[key] = load(i)", line)})
    found = _formed(source, Site("t.py", 6))
    assert (found and found.line) == at
    assert _formed(source, Site("other.py", 6)) is None and _formed(source, None) is None
