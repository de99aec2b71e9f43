"""A reader of report.json that knows nothing but docs/report-json.md: no import of ours, only
fields that the page describes.

python tests/reports/second_reader.py audits/trainer-step-.../report.json
"""

import json
import sys
from typing import Any


def summary(report: dict[str, Any]) -> list[str]:
    """The report in a few lines."""
    return [
        *_head(report),
        *(_finding(finding) for finding in report["findings"]),
        *_looked(report),
    ]


def _head(report: dict[str, Any]) -> list[str]:
    if report["schema"] != "audit-report/1":
        raise ValueError(f"not a report that this reader knows: {report['schema']}")
    run = report["run"]
    lines = [
        (
            f"{run['target']}: {run['outcome']} on {run['device']}, torch {run['torch']}, "
            f"{run['world_size']} process(es)"
        )
    ]
    if run["step_us"] is not None:
        times = run["step_us"]
        lines.append(
            f"step: median {times['median'] / 1e3:.1f} ms, p95 {times['p95'] / 1e3:.1f} ms of "
            f"{times['n']}"
        )
    if run["error"] is not None:
        lines.append(f"error: {run['error']['type']}: {run['error']['message']}")
    return lines


def _finding(finding: dict[str, Any]) -> str:
    site = finding["site"]
    where = f"{site['file']}:{site['line']}" if site is not None else "-"
    price = "not priced"
    if finding["lost_us_per_step"] is not None:
        price = f"{finding['lost_us_per_step'] / 1e3:.2f} ms ({finding['basis']})"
    elif finding["lost_bytes"] is not None:
        price = f"{finding['lost_bytes'] / 2**20:.0f} MiB ({finding['basis']})"
    words = [finding["severity"], finding["code"], where, price]
    remedy, verified = finding["remedy"], finding["verified"]
    if remedy["diff"] is not None:
        words.append("safe patch" if remedy["safe"] else "patch to look at")
    if verified is not None:
        words.append(
            f"{verified['status']}: {verified['step_us_before'] / 1e3:.1f} to "
            f"{verified['step_us_after'] / 1e3:.1f} ms"
        )
    return "  ".join(words)


def _looked(report: dict[str, Any]) -> list[str]:
    counted: dict[str, int] = {}
    for verdict in report["verdicts"]:
        counted[verdict["status"]] = counted.get(verdict["status"], 0) + 1
    lines = [
        "rules: " + ", ".join(f"{number} {status}" for status, number in sorted(counted.items()))
    ]
    return lines + [f"warning: {warning}" for warning in report["warnings"]]


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(summary(json.load(file))))
