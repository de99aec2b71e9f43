"""``audit compare``: two audits side by side, and whether the second is proven to be slower."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

from auditor import amounts
from auditor.cli import console, open_input, write_results
from auditor.cli.usage import EXIT_FOUND
from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.extensions.verify.comparison import (
    Comparison,
    Row,
    Side,
    barred_rows,
    compare,
    refusal,
)
from auditor.extensions.verify.intervals import quiet_run
from auditor.judging import catalogue, config
from auditor.model import Finding
from auditor.recordings.folder import MANIFEST

Shown = Callable[[float], str]

TOLD = 0.02
"""Share of the step time from which it is said that waiting for the processor was taken off."""


def run(*, before: str, after: str, max_regression: float | None, as_json: bool) -> int:
    """Print what changed; returns 1 where a regression by more than the share ``max_regression`` is
    proven.

    Raises :class:`AuditProblem` if the two have nothing in common, or cannot be judged as was
    asked.
    """
    sides = _side(Path(before)), _side(Path(after))
    if why := refusal(sides[0].report, sides[1].report):
        raise AuditProblem(
            _shown(f"the two cannot be compared: {why}"), "give two audits of the same target"
        )
    compared = compare(*sides)
    if all(row in compared.barred for row in _rows(compared)):
        reasons = "; ".join(dict.fromkeys(compared.barred.values()))
        raise AuditProblem(
            _shown(f"the two cannot be compared: {reasons}"), "give two audits made alike"
        )
    if max_regression is not None:
        _require_interval(compared, before, after)
    if as_json:
        console.hand_over(f"{json.dumps(_facts(compared), indent=2)}\n", form="json")
    else:
        for line in _lines(compared):
            console.say(line)
    if max_regression is None or compared.step is None:
        return 0
    if regressed := compared.regressed(max_regression):
        said = f"a step takes at least {compared.step.low - 1:.1%} longer"
        console.say(f"audit: {said}; {max_regression:.1%} is allowed", err=True)
    elif compared.step.ratio > 1.0 + max_regression:
        said = f"a step may take more than {max_regression:.1%} longer"
        console.say(f"audit: {said}, but these runs do not prove it", err=True)
    return EXIT_FOUND if regressed else 0


def _require_interval(compared: Comparison, before: str, after: str) -> None:
    """Raises :class:`AuditProblem` if there is nothing to judge: no verdict would mean anything."""
    if "step_us" in compared.barred:
        raise AuditProblem(
            _shown(
                "--max-regression cannot judge step times that cannot be compared: "
                f"{compared.barred['step_us']}"
            ),
            "audit both sides alike",
        )
    if compared.step is None:
        without = after if compared.before.runs else before
        raise AuditProblem(
            f"--max-regression needs the times of single steps, and {without} holds none",
            "keep the folder recording/ beside report.json: a report has only their median",
        )


def _shown(sentence: str) -> str:
    """Text of a report, which may be a stranger's, made harmless."""
    return str(catalogue.reports("text").one_line(sentence, 500))


GIVE = "give report.json, the folder of a run, or its recording"


# -- what is read ----------------------------------------------------------------------------------


def _side(path: Path) -> Side:
    """What lies at a path: one audit, or a folder of audits of one thing (with their spread)."""
    open_input.require_exists(path, GIVE)
    found = [path] if _is_audit(path) else []
    if not found and path.is_dir():
        found = sorted(filter(_is_audit, path.iterdir()))
    if not found:
        raise AuditProblem(f"{path} holds no report and no recording", GIVE)
    sides = [_audit(each) for each in found]
    last = max(sides, key=lambda side: side.report.run.recorded_at)
    for file, side in zip(found, sides, strict=True):
        why = refusal(last.report, side.report) or barred_rows(last.report, side.report).get(
            "step_us", ""
        )
        if why:
            raise AuditProblem(
                _shown(f"{path} holds audits of unlike runs ({file.name}): {why}"),
                "give runs that were made alike",
            )
    runs = tuple(run for side in sides for run in side.runs)
    return replace(last, runs=runs if len(runs) == len(sides) else ())


def _is_audit(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".json"
    return any(
        (path / name).is_file()
        for name in (open_input.REPORT, MANIFEST, f"{open_input.RECORDING}/{MANIFEST}")
    )


def _audit(path: Path) -> Side:
    recording = open_input.recording_of(path)
    evidence = Evidence(recording) if recording is not None else None
    if path.is_file() or (path / open_input.REPORT).is_file():
        report = open_input.report_of(path)
        made = recording.manifest.get("recorded_at") if recording is not None else None
        evidence = evidence if made == report.run.recorded_at else None
    else:
        assert evidence is not None
        settings = config.load(Path.cwd(), catalogue.rules())
        rules = catalogue.choose(settings.select, settings.ignore)
        report = write_results.judge(evidence, rules, settings)
    if evidence is None:
        return Side(report)
    run = quiet_run(evidence)
    args = tuple(evidence.recording.manifest.get("argv", ()))
    return Side(report, (run,) if run.us else (), args)


# -- what is shown ---------------------------------------------------------------------------------


def _facts(compared: Comparison) -> dict[str, Any]:
    """Everything as JSON, under the names of report.json."""
    first, last = compared.span or (None, None)
    return {
        "schema": "audit-compare/1",
        "step_us": {"before": compared.before.step_us, "after": compared.after.step_us},
        "steps_in_common": None if first is None else {"first": first, "last": last},
        "ratio": asdict(compared.step) if compared.step is not None else None,
        "peak_bytes": {name: asdict(side.report.run.peak_bytes) for name, side in _sides(compared)},
        "syncs_per_step": {name: side.syncs for name, side in _sides(compared)},
        "findings": {
            name: [
                {
                    "key": each.key,
                    "code": each.code,
                    "site": str(each.site or ""),
                    "message": each.message,
                }
                for each in found
            ]
            for name, found in _changes(compared)
        },
        "not_compared": {_NAMES[row]: reason for row, reason in compared.barred.items()},
        "differs": list(compared.told),
    }


def _sides(compared: Comparison) -> tuple[tuple[str, Side], ...]:
    return ("before", compared.before), ("after", compared.after)


def _changes(compared: Comparison) -> tuple[tuple[str, tuple[Finding, ...]], ...]:
    named = ("new", compared.new), ("gone", compared.gone), ("kept", compared.kept)
    return (*named, ("not_compared", compared.one_sided))


_NAMES: dict[Row, str] = {
    "step_us": "step_us",
    "device_bytes": "peak_bytes.device",
    "host_bytes": "peak_bytes.host",
    "syncs": "syncs_per_step",
    "findings": "findings",
}
"""Rows by their names in report.json."""


def _rows(compared: Comparison) -> dict[Row, tuple[str, float | None, float | None, Shown]]:
    """Rows that a side knows: title, both values, how one is shown. Findings are always there."""
    one, other = compared.before, compared.after
    old, new = one.report.run.peak_bytes, other.report.run.peak_bytes
    rows: dict[Row, tuple[str, float | None, float | None, Shown]] = {
        "step_us": ("step time", one.step_us, other.step_us, amounts.duration),
        "device_bytes": ("device memory", old.device, new.device, amounts.size),
        "host_bytes": ("host memory", old.host, new.host, amounts.size),
        "syncs": ("host syncs", one.syncs, other.syncs, amounts.digits),
        "findings": (
            "findings",
            len(one.report.findings),
            len(other.report.findings),
            amounts.digits,
        ),
    }
    return {row: told for row, told in rows.items() if told[1] is not None or told[2] is not None}


def _lines(compared: Comparison) -> Iterator[str]:
    yield f"{'':14}{'before':>12}{'after':>12}"
    for row, (title, one, other, shown) in _rows(compared).items():
        if row == "findings" and row not in compared.barred:
            continue  # they have lines of their own
        if row in compared.barred:
            said = f"not compared: {compared.barred[row]}"
        elif row == "step_us":
            said = _ratio(compared)
        elif row == "syncs":
            said = "per step, as reported"
        else:
            said = "" if not one or other is None else f"{other / one - 1:+.1%}"
        cells = (f"{'-' if value is None else shown(value):>12}" for value in (one, other))
        yield _shown(f"{title:14}{''.join(cells)}  {said}".rstrip())
        if row == "step_us":
            yield from _about_times(compared)
    yield from (f"{'':14}{_shown(sentence)}" for sentence in compared.told)
    if "findings" in compared.barred:
        return
    yield ""
    text, changes = catalogue.reports("text"), _changes(compared)
    yield "findings: " + ", ".join(f"{len(found)} {name}" for name, found in changes[:3])
    for name, found in changes[:2]:
        for each in found:
            where = f" {text.path(str(each.site))}" if each.site else ""
            said = text.one_line(each.message, 1000)
            yield f"  {name:5}{text.path(each.code)}{where}: {said}"
    if compared.one_sided:
        codes = ", ".join(sorted({finding.code for finding in compared.one_sided}))
        number = amounts.count(len(compared.one_sided), "more finding")
        yield _shown(f"  not compared: {number} that could only be seen on one side ({codes})")


def _about_times(compared: Comparison) -> Iterator[str]:
    if compared.span is not None and compared.step is not None:
        first, last = compared.span
        yield f"{'':14}of the program's steps {first + 1} to {last + 1}, which both sides timed"
    if "step_us" not in compared.barred and any(
        run.busy >= TOLD for _, side in _sides(compared) for run in side.runs
    ):
        shares = " and ".join(
            amounts.percent(median(run.busy for run in side.runs)) if side.runs else "unknown"
            for _, side in _sides(compared)
        )
        yield (
            f"{'':14}without the time that steps waited for the processor, which was {shares} of it"
        )


def _ratio(compared: Comparison) -> str:
    step = compared.step
    if step is None:
        return "no interval: the times of single steps are not there"
    sides = (f"{len(side.runs)} run{'s' * (len(side.runs) != 1)}" for _, side in _sides(compared))
    known = "a difference" if step.excludes_one else "no difference proven"
    return (
        f"ratio {step.ratio:.3f} [{step.low:.3f} - {step.high:.3f}], {known} "
        f"({' and '.join(sides)})"
    )
