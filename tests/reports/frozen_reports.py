"""Reports that hold one thing each, for ``test_frozen.py``: what users read of it, in every format."""

from dataclasses import replace

from auditor.model import Rank, Severity, Site, StepTimes, TargetError
from auditor.model.charts import Series
from auditor.model.sections import COPYING, EXPOSED, IDLE, ByModule, Gain, ModuleUse
from auditor.model.what_if import WhatIf
from tests.reports import golden_report as golden
from tests.reports import test_outcomes as outcomes
from tests.reports import test_report_communication as communication
from tests.reports import test_report_compilation as compilation
from tests.reports import test_report_device as device
from tests.reports import test_report_prices as prices
from tests.reports import test_report_verified as verified
from tests.reports import test_report_what_if as what_if
from tests.reports import test_report_words as words

BUSY = "the machine was busy (steps waited 38% of their time for a processor): audit again"


WHOLE = {
    "rich": golden.rich_report(),
    "silent": golden.silent_report(),
    "failed": golden.failed_report(),
}
"""Reports with many verdicts, rules' pages and figures."""


def reports():
    """By name; those that hold one thing hold little else."""
    small = {**dict(_of_runs()), **dict(_of_sections()), **dict(_of_prices())}
    return {**WHOLE, **{name: _bare(report) for name, report in small.items()}}


def _bare(report):
    found = tuple(replace(each, places=()) for each in report.findings)
    few = {verdict.status: verdict for verdict in report.verdicts}
    return replace(
        report,
        findings=found,
        verdicts=tuple(few.values()),
        manual={},
        method=(),
        excerpts={},
        layers=(),
        parts=None,
        operators=(),
    )


def _of_runs():
    rich, silent, failed = golden.rich_report(), golden.silent_report(), golden.failed_report()
    run = rich.run
    assert run.step_us is not None and failed.run.error is not None
    for n in (1, 6):
        few = StepTimes(10_000.0, 30_000.0, 8_000.0, 30_000.0, n)
        yield f"{n} timed", replace(silent, run=replace(run, step_us=few))
    yield "short", replace(silent, run=replace(run, step_us=replace(run.step_us, n=13)))
    yield "rehearsal alone", replace(silent, run=replace(run, device="rehearse"))
    beside = {"rehearsed on": "NVIDIA H200 (rehearsed on the CPU)"}
    yield "rehearsal beside", replace(silent, environment=beside)
    times = replace(run.step_us, low=37_000.0, high=39_500.0, queued=0.38)
    yield "busy machine", replace(rich, cautions=(BUSY,), run=replace(run, step_us=times))
    own = replace(silent.run, in_process=True)
    yield "own process", replace(silent, run=own, findings=rich.findings[:1])
    one = Rank(
        None, "t.json", "host", "H100", 1, 1e4, 4_000.0, 4_000.0, 0.0, 0.0, 0.0, 500.0, 2**30
    )
    yield "rank alone", replace(silent, ranks=(one,))
    yield "one rank", words._job(1.0)
    yield "job", words._job(5.0, 2.0, 6.0)
    error = TargetError("ValueError", "one\ntwo", "", site=Site("train.py", 7, "step", "x"))
    yield "raised", replace(silent, run=replace(silent.run, outcome="raised", error=error))
    x = tuple(map(float, range(20_000)))
    yield "thinned", replace(silent, series=(Series("quiet", "us", x, x),))


def _of_sections():
    short = outcomes.report(outcomes.SHORT, findings=())
    yield "out of memory", short
    fits = replace(outcomes.SHORT, fits=("a:1", "b:2"), tried=4)
    yield "out of memory, and would fit", replace(short, ran_out=fits)
    for name, files in (("good", outcomes.FILES), ("bad", outcomes.FILES[2:3])):
        yield f"{name} checkpoints", replace(golden.silent_report(), checkpoints=files)
    yield "device", device.report(device.told())
    loaded = {EXPOSED: 0.1, COPYING: 0.2, IDLE: 0.05}
    yield "busy device", device.report(device.told(busy=0.95, **loaded))
    yield "compiled", compilation.report()
    yield "nothing compiled", compilation.report(compiled=0, again=0, breaks=0, during=0, gain=None)
    for name, gain in (
        ("no gain", Gain(10.0, -5.0, 25.0, 2000.0)),
        ("slower", Gain(-500.0, -600.0, -400.0, 2000.0)),
    ):
        yield f"compiled, {name}", compilation.report(compiled=1, breaks=2, during=1, gain=gain)
    lin = ModuleUse("Net.ff.0", "Linear", 4, Site("net.py", 7, "f", ""), 0.1, 0.1, 2**20, 6e9)
    ff = ModuleUse("Net.ff", "MLP", 4, None, 0.1, 0.4, 0, 6e9, (lin,))
    at = Site("net.py", 3, "f", "")
    net = ModuleUse("Net", "Net", 1, at, 0.2, 0.4, 2**21, 6e9, (ff,))
    found = ByModule((net,), 6e9, 6e11, 800.0, 12_800.0, 0.41)
    yield "by module", replace(golden.silent_report(), by_module=found)
    yield "ranks", communication.report()
    yield "real ranks", communication.report(played=False)
    yield "what if", what_if.report()
    alone = replace(what_if.WHAT_IF, recorded_us=38_200.0, joint_us=500.0, fixes=what_if.FIXES[:1])
    yield "one fix", what_if.report(alone)
    yield "no replay", what_if.report(WhatIf(1.0, 2.0, reason="a launch is missing"))


def _of_prices():
    yield "proven", prices._report(prices.PROVEN)
    yield "unproven", prices._report(prices.UNPROVEN)
    yield "proven and unproven", prices._report(prices.PROVEN, prices.UNPROVEN)
    yield "verified", verified.report_of_re_runs()
    yield "re-run, not told yet", prices._rerun(("inconclusive", 1))
    yield "re-run, one broken", prices._rerun(("broken", 1), ("better", 3))
    yield "re-run, none better", prices._rerun(("same", 3), ("worse", 3))
    yield "re-run, untimed", prices._rerun(("same", 1))
    training = [
        replace(
            golden.rich_report().findings[-1],
            site=Site("t.py", n),
            message=f"says {n}",
            code=code,
            severity=level,
        )
        for n, (code, level) in enumerate(
            (
                ("SYNC001", Severity.ERROR),
                ("TRAIN001", Severity.ERROR),
                ("TRAIN003", Severity.WARNING),
            ),
            1,
        )
    ]
    yield "training", replace(golden.silent_report(), findings=tuple(training))
