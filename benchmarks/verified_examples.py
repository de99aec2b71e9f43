"""Audit every broken example, verify all its safe patches, apply them, audit again; writes
docs/log/verified.md.

    OMP_NUM_THREADS=1 python benchmarks/verified_examples.py [budget in seconds, default 240]
    [example ...]

An example is broken where its ``expected.toml`` does not say ``clean = true``. Only the examples
named are made anew, or all.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

BY_HAND = "# Verified patches of programs that were not written for this project"
"""What stands from here on in docs/log/verified.md was measured by hand, and is kept."""


HEAD = """# Verified patches of the broken examples

Written by `benchmarks/verified_examples.py`: each broken example audited, all its safe patches
verified, applied, and audited again.
"""


def audit(*arguments: str, cwd: Path) -> None:
    command = [sys.executable, "-c", "from auditor.cli.main import main; main()", *arguments]
    subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def broken() -> Iterator[tuple[str, Path, str]]:
    for file in sorted((ROOT / "examples").rglob("expected.toml")):
        expected = tomllib.loads(file.read_text())
        if not expected["clean"]:
            yield str(file.parent.relative_to(ROOT)), file.parent, expected["target"]


def verify(folder: Path, target: str, budget: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The verified report, and that of the audit after all safe patches were applied."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / folder.name
        shutil.copytree(folder, home, ignore=shutil.ignore_patterns("audits", "__pycache__"))
        audit("run", target, "--out", "before", "--verify", "--budget", budget, "--quiet", cwd=home)
        before = json.loads((home / "before" / "report.json").read_text())
        audit("fix", "before", "--apply", cwd=home)
        audit("run", target, "--out", "after", "--quiet", cwd=home)
        return before, json.loads((home / "after" / "report.json").read_text())


def page(budget: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    verification = before["verification"]
    if verification is None:
        yield f"{len(before['findings'])} findings, none with a safe patch: nothing to verify."
        return
    left = {(finding["code"], (finding["site"] or {}).get("text")) for finding in after["findings"]}
    yield (
        f"{before['run']['device']}, torch {before['run']['torch']}, {verification['runs']} runs "
        f"of {verification['steps']} steps"
    )
    yield (
        f"in {verification['seconds']:.0f} s, of {budget} s allowed. Results repeatable: "
        f"{'yes' if verification['repeatable'] else 'no'}."
    )
    if verification["noise"]:
        yield "Noise floor (ratio of unpatched runs, 99 % interval): {:.3f} to {:.3f}.".format(
            *verification["noise"]
        )
    yield (
        "\n| patch | verdict | step time after / before | peak memory | same result | silent "
        "afterwards |\n|---|---|---|---|---|---|"
    )
    for finding in before["findings"]:
        if finding["verified"]:
            silent = (finding["code"], (finding["site"] or {}).get("text")) not in left
            yield row(
                f"{finding['code']} `{finding['site']['text']}`",
                finding["verified"],
                "yes" if silent else "no",
            )
    if verification["together"]:
        yield row(f"all together: {', '.join(verification['codes'])}", verification["together"], "")
    yield from (f"\n{note}" for note in verification["notes"])


def row(name: str, verified: dict[str, Any], silent: str) -> str:
    ratio = (
        "not timed (rehearsal)"
        if verified["step_us_before"] is None
        else "too few pairs for the budget"
    )
    if verified["ratio"] is not None:
        ratio = "{ratio:.3f} [{ratio_low:.3f} - {ratio_high:.3f}], {pairs} pairs".format(**verified)
    peaks = (verified["peak_bytes_before"], verified["peak_bytes_after"])
    memory = " to ".join(f"{peak / 2**20:.0f} MiB" for peak in peaks) if None not in peaks else ""
    same = {True: "yes", False: "no", None: "not compared"}[verified["same_result"]]
    return f"| {name} | {verified['status']} | {ratio} | {memory} | {same} | {silent} |"


def main() -> None:
    budget, asked = (sys.argv[1] if len(sys.argv) > 1 else "240"), sys.argv[2:]
    page_file = ROOT / "docs/log/verified.md"
    generated, mark, by_hand = page_file.read_text().partition(BY_HAND)
    told = {
        part.partition("\n")[0]: part.partition("\n")[2].strip()
        for part in generated.split("\n## ")[1:]
    }
    known = {name: (folder, target) for name, folder, target in broken()}
    for name in asked or known:
        told[name] = "\n".join(page(budget, *verify(*known[name], budget)))
        parts = [f"## {each}\n\n{told[each]}\n" for each in known if each in told]
        page_file.write_text("\n".join([HEAD, *parts, f"{mark}{by_hand}"]))


if __name__ == "__main__":
    main()
