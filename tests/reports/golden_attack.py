"""A report whose every text attacks: markup, escapes, hidden characters, endless lines."""

from dataclasses import replace

from auditor.model import Edit, Excerpt, Finding, Remedy, Severity, Site, TargetError, Verdict
from auditor.model.charts import Parts, Tone
from auditor.model.sections import ByModule, ModuleUse
from tests.reports import golden_charts
from tests.reports.golden_report import rich_report

ATTACKS = (
    "</script><script>window.attacked = 1</script>",
    '<img src=x onerror="window.attacked = 2">',
    "\"><svg onload='window.attacked = 3'>",
    '<a href="https://attacker.example/" onclick="window.attacked = 7">link</a>',
    "'; window.attacked = 4; //",
    "`${window.attacked = 5}`",
    "<!--<script>",
    "]]>{{ 7 * 7 }}{% raw %}",
    "javascript:window.attacked=6",
    "[bold red]markup[/bold red]",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "left\u202eright\u2066isolate\u200bzero\u2028line",
    "nul\x00bell\x07back\x08\x9b31m",
    "surrogate \udc80",
    "```\n# heading\n<b>bold</b>",
)


def attack_report():
    """Every attack in every text that the user's program can give, and lines of 1 MB."""
    report = rich_report()
    long = "x" * 1_000_000
    findings = tuple(_attacked(attack) for attack in (*ATTACKS, long))
    every = " ".join(ATTACKS)
    module = ModuleUse(every, every, 2, Site(every, 1, every, every), 0.5, 0.5, 1, 1.0)
    return replace(
        report,
        by_module=ByModule(
            (replace(module, inside=(replace(module, path=f"{every}.x"),)),), 1.0, 1.0
        ),
        run=replace(
            report.run,
            target=every,
            device=every,
            torch=every,
            recorded_at=every,
            outcome="raised",
            error=TargetError(
                every, every, f"{every}\n{long}\n{every}", 1, every, Site(every, 1, every, every)
            ),
        ),
        findings=findings,
        verdicts=tuple(
            Verdict(attack, attack, status, attack)
            for attack in ATTACKS
            for status in ("found", "clean", "skipped", "failed")
        ),
        warnings=(*ATTACKS, long),
        tool={"name": every, "version": every},
        environment={attack: attack for attack in ATTACKS},
        method=ATTACKS,
        series=tuple(replace(report.series[0], name=attack) for attack in ATTACKS),
        operators=tuple((attack, 1, 1.0) for attack in ATTACKS),
        excerpts={
            str(finding.site): Excerpt(attack, 1, (attack, long, every))
            for finding, attack in zip(findings, ATTACKS)
        },
        layers=tuple(
            replace(
                golden_charts.memory(attack), layers=(Tone(attack, 1),) * 3, marks=((0.0, attack),)
            )
            for attack in ATTACKS
        ),
        parts=_parts(golden_charts.parts(), "".join(ATTACKS)),
        manual={
            attack: f"# {attack}\n{attack}\n- {attack}\n```\n{attack}\n```\n`{attack}`"
            for attack in ATTACKS
        },
    )


def _parts(chart, attack):
    bars = tuple(replace(bar, label=attack) for bar in chart.bars)
    tones = tuple(Tone(attack, 1) for _ in chart.tones)
    return Parts(attack, attack, (attack, attack), tones, bars, (attack,))


def _attacked(attack):
    site = Site(attack, 2, attack, attack)
    return Finding(
        site,
        attack,
        steps=1,
        per_step=1.0,
        lost_us_per_step=1.0,
        basis="measured",
        facts=((attack, attack),),
        severity=Severity.ERROR,
        code=attack,
        name=attack,
        key=attack,
        remedy=Remedy(
            attack,
            (Edit(site, "detach", attack, attack, attack, True, attack),),
            {attack: attack},
            f"--- {attack}\n+{attack}",
            attack,
        ),
    )
