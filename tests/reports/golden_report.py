"""Reports for the tests of renderers: a rich one, one of a target that failed, a silent one."""

import math
from dataclasses import replace

from auditor.model import (
    Edit,
    Excerpt,
    Finding,
    PeakBytes,
    Remedy,
    Report,
    Run,
    Severity,
    Site,
    StepTimes,
    TargetError,
    Verdict,
    finding_key,
)
from auditor.model.charts import Series
from auditor.model.sections import Verified
from tests.reports import golden_charts

TRAINER = "examples/energy_flow/trainer.py"

MANUAL = """\
# SYNC001 A tensor becomes a Python number on every step

*warning, since 0.1, needs Steps, Reads*

## What it finds
``.item()``, ``float(t)`` or `if t:` at the same line on **nearly every** step:

- in the training loop
- in a metric that is
  updated by the loop

## Example
```python
def step(loss):
    return loss.mean().item()   # <- waits
```

## Knobs
| knob | default |
|------|---------|
| share | 0.9 |
"""

DIFF = f"""\
--- a/{TRAINER}
+++ b/{TRAINER}
@@ -140,4 +140,4 @@ def step(self, batch):
         loss = self.criterion(prediction, batch["flow"])
-        self.running += loss.item()
+        self.running += loss.detach()
         loss.backward()
         self.optimizer.step()
"""


def _site(line, text, function="Trainer.step", file=TRAINER):
    return Site(file, line, function, text)


def _finding(code, name, severity, site, message, **more):
    finding = Finding(
        site, message, code=code, name=name, severity=severity, key=finding_key(code, site)
    )
    return replace(finding, **{"seen_on": "cpu", **more})  # type: ignore[arg-type]


def _findings():
    item = _site(142, "self.running += loss.item()")
    sync = _finding(
        "SYNC001",
        "scalar-read-every-step",
        Severity.WARNING,
        item,
        "The host waits for a number on 50 of 50 steps: 8.41 ms each time, with nothing queued "
        "behind it.",
        steps=50,
        per_step=1.0,
        lost_us_per_step=8412.5,
        basis="measured",
        facts=(
            ("waits", "50"),
            ("longest wait", "9.9 ms"),
            ("read as", "float of a 0-dim float32 tensor"),
        ),
        remedy=Remedy(
            "Keep the running loss on the device and read it once where it is logged.",
            edits=(
                Edit(
                    item,
                    "detach",
                    safe=True,
                    reason="the value is only accumulated, never read before the epoch ends",
                ),
            ),
            diff=DIFF,
        ),
        verified=Verified(
            "better", 38_240.0, 29_610.0, 0.774, 0.761, 0.79, 512 << 20, 512 << 20, True
        ),
    )
    reset = _site(88, "torch.cuda.reset_peak_memory_stats()")
    return (
        sync,
        _finding(
            "GRAPH001",
            "graph-kept-across-steps",
            Severity.ERROR,
            _site(151, "self.losses.append(loss)"),
            "Every step appends a loss with its graph: 50 graphs are alive at the end, and memory "
            "grows by 11.2 MiB a step.",
            steps=50,
            per_step=1.0,
            lost_bytes=587_202_560,
            basis="measured",
            facts=(("oldest graph", "49 steps"), ("nodes in one graph", "1,284")),
            remedy=Remedy(
                "Append loss.detach().",
                edits=(
                    Edit(
                        _site(151, ""),
                        "detach",
                        safe=False,
                        reason="a later backward through the list would change",
                    ),
                ),
                diff=DIFF.replace("running += loss.item()", "losses.append(loss)").replace(
                    "running += loss", "losses.append(loss"
                ),
            ),
        ),
        _finding(
            "DATA001",
            "step-waits-for-the-loader",
            Severity.WARNING,
            _site(77, "for batch in loader:", "Trainer.fit"),
            "31 % of the step is spent waiting for the next batch.",
            steps=48,
            per_step=0.96,
            lost_us_per_step=4100.0,
            basis="estimated",
            remedy=Remedy(
                "Load with worker processes.",
                refused="the DataLoader is made in a library, not in your source",
            ),
        ),
        _finding(
            "MEM004",
            "allocator-fragmentation",
            Severity.WARNING,
            None,
            "At the peak 38 % of what the allocator reserved could not be used.",
            lost_bytes=3 << 30,
            basis="estimated",
            seen_on="snapshot",
            remedy=Remedy(
                "Let segments grow.", config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}
            ),
        ),
        _finding(
            "SYNC009",
            "peak-memory-reset-every-step",
            Severity.NOTE,
            reset,
            "The peak counter is reset on every step.",
            steps=50,
            per_step=1.0,
            seen_on="rehearsal",
            remedy=Remedy(
                "Reset it where an epoch begins.",
                edits=(
                    Edit(
                        reset,
                        "drop_statement",
                        "reset_peak_memory_stats",
                        safe=True,
                        reason="only statistics change",
                    ),
                ),
            ),
        ),
        _finding(
            "SYNC001",
            "scalar-read-every-step",
            Severity.WARNING,
            _site(160, "if grad_norm > self.limit:"),
            "The host waits for a truth value on 50 of 50 steps.",
            steps=50,
            per_step=2.0,
            lost_us_per_step=412.0,
            basis="measured",
        ),
        _finding(
            "CFG008",
            "float64-in-the-step",
            Severity.NOTE,
            _site(
                12,
                "SCALE = np.float64(0.1)",
                "<module>",
                "examples/energy_flow/" + "deep/" * 12 + "constants.py",
            ),
            "Two operators compute in float64.",
            seen_on="source",
        ),
    )


def _verdicts():
    found = {
        "SYNC001": "scalar-read-every-step",
        "SYNC009": "peak-memory-reset-every-step",
        "GRAPH001": "graph-kept-across-steps",
        "DATA001": "step-waits-for-the-loader",
        "MEM004": "allocator-fragmentation",
        "CFG008": "float64-in-the-step",
    }
    clean = [
        f"{family}{number:03}"
        for family, top in (("SYNC", 8), ("DATA", 8), ("GRAPH", 6), ("NUM", 14), ("OPT", 5))
        for number in range(2, top)
    ]
    skipped = [
        ("KERN001", "no CUDA device"),
        ("KERN002", "no CUDA device"),
        ("DIST001", "one process"),
        ("MEM002", "no CUDA device"),
        ("CKPT001", "no checkpoint was given"),
        ("AMP001", "autocast was never entered"),
    ]
    return (
        *(Verdict(code, name, "found") for code, name in found.items()),
        *(Verdict(code, f"something-that-{code.lower()}-looks-for", "clean") for code in clean),
        *(
            Verdict(code, f"something-that-{code.lower()}-looks-for", "skipped", reason)
            for code, reason in skipped
        ),
        Verdict(
            "TIME003",
            "outlier-steps",
            "failed",
            "Traceback (most recent call last):\n  ...\nZeroDivisionError: division by zero",
        ),
    )


def _series():
    quiet = tuple(
        38_000 + 900 * math.sin(step * 1.7) + (22_000 if step == 31 else 0) for step in range(50)
    )
    loud = tuple(55_000 + 2_000 * math.cos(step * 2.3) for step in range(8))
    memory = tuple(float((400 << 20) + step * (11 << 20)) for step in range(50))
    return (
        Series(
            "quiet pass",
            "us",
            tuple(map(float, range(5, 55))),
            quiet,
        ),
        Series("loud pass", "us", tuple(map(float, range(55, 63))), loud),
        Series("allocated", "bytes", tuple(map(float, range(5, 55))), memory),
        Series(
            "reserved",
            "bytes",
            tuple(map(float, range(5, 55))),
            tuple(value * 1.3 for value in memory),
        ),
    )


def _excerpts(findings):
    made = {}
    for finding in findings:
        if finding.site is not None and finding.site.file == TRAINER:
            before = (
                "    def step(self, batch):",
                "        self.optimizer.zero_grad()",
                "        prediction = self.model(batch)",
            )
            after = ("        loss.backward()", "        self.optimizer.step()", "")
            made[str(finding.site)] = Excerpt(
                TRAINER, finding.site.line - 3, (*before, " " * 8 + finding.site.text, *after)
            )
    return made


def rich_report():
    """Findings of every kind, every status, charts, operators, a manual page."""
    findings = _findings()
    return Report(
        run=Run(
            target="examples.energy_flow.trainer:step",
            steps=50,
            warmup=5,
            world_size=1,
            device="cpu",
            outcome="completed",
            error=None,
            step_us=StepTimes(38_240.0, 41_020.0, 36_900.0, 60_100.0, 50),
            peak_bytes=PeakBytes(None, 1_610_612_736),
            torch="2.13.0+cpu",
            python="3.11.7",
            recorded_at="2026-11-21T15:04:05Z",
        ),
        verdicts=_verdicts(),
        findings=findings,
        warnings=(
            "The load average was 2.1 on 2 cores: times are noisy.",
            "Only 8 steps were traced.",
        ),
        tool={"name": "torch-step-audit", "version": "0.1.0"},
        environment={
            "platform": "Linux-6.1 x86_64",
            "cpu": "AMD EPYC, 2 cores",
            "threads": "1",
            "torch": "2.13.0+cpu",
        },
        method=(
            "Times come from a quiet pass of 50 steps.",
            "Places come from a loud pass of 8 steps with hooks on.",
        ),
        series=_series(),
        operators=(
            ("aten::addmm", 96, 14_200.0),
            ("aten::copy_", 210, 4_100.5),
            ("aten::add_", 48, 88.0),
        ),
        excerpts=_excerpts(findings),
        manual={"SYNC001": MANUAL, "GRAPH001": MANUAL.replace("SYNC001", "GRAPH001")},
        layers=(golden_charts.memory(),),
        parts=golden_charts.parts(),
    )


def silent_report():
    """Nothing found, some rules skipped."""
    report = rich_report()
    verdicts = tuple(
        verdict for verdict in report.verdicts if verdict.status in ("clean", "skipped")
    )
    return replace(
        report,
        findings=(),
        verdicts=verdicts,
        excerpts={},
        manual={},
        series=(),
        warnings=(),
        layers=(),
        parts=None,
    )


def failed_report():
    """The target raised in the seventh step of the quiet pass."""
    report = rich_report()
    error = TargetError(
        "RuntimeError",
        "mat1 and mat2 shapes cannot be multiplied (64x128 and 256x10)",
        f'Traceback (most recent call last):\n  File "{TRAINER}", line 139, in step\n    '
        "prediction = self.model(batch)\n"
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x128 and 256x10)\n",
        7,
        "quiet",
        _site(139, "prediction = self.model(batch)"),
    )
    return replace(
        report,
        run=replace(report.run, outcome="raised", error=error),
        findings=report.findings[1:2],
    )
