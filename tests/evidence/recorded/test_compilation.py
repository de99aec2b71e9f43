"""What the report says of torch.compile, from the rows of a recording."""

from auditor.evidence.recorded.compiles import PARTS, compilation
from tests.evidence.recorded.test_compiled_regions import ran, region, steps
from tests.evidence.recorded.test_compiles import compiled, row


def timed(name, us, n=60, **more):
    rows = steps(**{name: n})
    return [each | {"us": us * (1 + each["step"] * 7 % 11 / 300)} | more for each in rows]


def made(seen, **parts):
    given = {
        "sites": [3, 8],
        "compiles": [row("break"), compiled(), row("recompile", 1, step=1), compiled(1)],
        "regions": [region(options="dynamic=True")],
        "region_runs": [ran(steps=60, called=True)],
        "steps": [*timed("quiet", 1000.0), *timed("eager_held", 3000.0)],
    }
    return compilation(seen(**{**given, **parts}))


def test_counts_times_and_the_gain(seen):
    found = made(seen)
    wanted = (2, 2000.0, 1, 0, 0)
    assert (found.compiled, found.us, found.again, found.breaks, found.during) == wanted
    (part,) = found.parts
    assert (part.what, part.options, part.steps, part.watched) == ("Net", "dynamic=True", 60, 60)
    assert 2000.0 < found.gain.low < found.gain.us < found.gain.high < 2100.0
    assert found.gain.eager_us > 3000.0
    assert found.paid_after == 1


def test_steps_that_compiled_and_calls_in_steps_are_told(seen):
    inside = [region(0, "quiet", step, in_step=True) for step in range(4)]
    found = made(
        seen, regions=inside, region_runs=[], steps=timed("quiet", 1000.0, n=4, compiles=1)
    )
    assert (found.during, found.gain) == (4, None)
    (part,) = found.parts
    assert (part.steps, part.watched) == (4, 4)


def test_no_more_parts_than_a_report_lists(seen):
    many = [region(n) for n in range(PARTS + 1)]
    found = made(seen, regions=many, region_runs=[ran(n) for n in range(PARTS + 1)])
    assert len(found.parts) == PARTS
