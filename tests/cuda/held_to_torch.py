"""A rehearsal's waits beside torch's own word: the tables of docs/log/gpu-facts.md.

``.venv-cuda/bin/python -m tests.cuda.held_to_torch`` writes them (about two minutes): the snippets
of waits_seen.py, this repository's examples, and the corpus in ``../shared`` where it is. Torch's
own word is its warning (``torch.cuda.set_sync_debug_mode("warn")``) and the calls of CUDA that
blocked on the null device; both sides run the torch that runs this.
"""

import functools
import json
import linecache
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from auditor import null_device
from tests.cuda.explained import EXPLAINED, VERSIONS

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = ROOT.parent / "shared" / "corpus"
SNIPPETS = ("constructs", "sync_zoo", "zoo")
FILES = {
    "constructs": "tests/shadow/constructs.py",
    "sync_zoo": "tests/capture/probes/sync/sync_zoo.py",
    "zoo": "tests/shadow/zoo.py",
}
TORCH = tuple(map(int, torch.__version__.split("+")[0].split(".")[:2]))


@dataclass(frozen=True)
class Row:
    """One place of one piece, as both sides saw it."""

    piece: str
    place: str
    warnings: int
    calls: Counter[str]
    told: Counter[str]

    @property
    def waits(self) -> int:
        """How often the host waited, by the null device's log."""
        return sum(self.calls.values())

    @property
    def verdict(self) -> str:
        """``agree``, ``once`` (both wait; one operator waits more than once inside), ``differ``."""
        if self.waits == self.told.total():
            return "agree"
        return "once" if self.waits > self.told.total() > 0 else "differ"


@dataclass(frozen=True)
class Compared:
    """What both sides saw of one piece."""

    piece: str
    rows: list[Row]
    ended: tuple[str | None, str | None]
    """How it failed on the null device and in the rehearsal; None: it did not."""

    @property
    def verdict(self) -> str:
        """The worst of its rows; a piece that failed on one side only parted."""
        found = {row.verdict for row in self.rows}
        if "differ" in found or (self.ended[0] is None) != (self.ended[1] is None):
            return "differ"
        return "once" if "once" in found else "agree"


class Child:
    """One side at work in a process of its own."""

    def __init__(self, side: str, pieces: list[str], folder: Path) -> None:
        self.out = folder / f"{side}.json"
        surroundings = null_device.environment("H100") if side == "torch" else {}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.cuda.waits_seen", side, str(self.out), *pieces],
            cwd=ROOT,
            env={
                **null_device.without(os.environ),
                **surroundings,
                "PYTHONPATH": str(ROOT),
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def seen(self) -> dict[str, Any]:
        """Piece -> what was seen; AssertionError with what the child wrote where it died."""
        said, _ = self.process.communicate(timeout=500)
        assert self.process.returncode == 0, said[-3000:]
        found: dict[str, Any] = json.loads(self.out.read_text())["pieces"]
        return found


def compared(pieces: list[str], folder: Path) -> list[Compared]:
    """Run both sides, and set what they saw side by side."""
    children = [Child(side, pieces, folder) for side in ("torch", "rehearsal")]
    mine, theirs = (child.seen() for child in children)
    return [_beside(piece, mine[piece], theirs[piece]) for piece in mine]


def _beside(piece: str, torchs: dict[str, Any], rehearsed: dict[str, Any]) -> Compared:
    places = sorted({*torchs["places"], *rehearsed["places"]}, key=_line)
    rows = []
    for place in places:
        calls = Counter(torchs["places"].get(place, {}))
        warnings = calls.pop("warning", 0)
        rows.append(Row(piece, place, warnings, calls, Counter(rehearsed["places"].get(place, {}))))
    return Compared(piece, rows, (torchs["error"], rehearsed["error"]))


def _line(place: str) -> tuple[str, int]:
    file, _, line = place.rpartition(":")
    return file, int(line or 0)


def programs() -> Iterator[tuple[str, Path, str]]:
    """Name, folder and target of each example, and of each program of the corpus."""
    examples = ROOT / "examples"
    for expected in sorted(examples.rglob("expected.toml")):
        folder = expected.parent
        target = tomllib.loads(expected.read_text())["target"]
        yield f"examples/{folder.relative_to(examples)}", folder, target
    for trainer in sorted(CORPUS.glob("*/trainer.py")):
        yield f"corpus/{trainer.parent.name}", trainer.parent, "trainer:step"


def program_compared(name: str, folder: Path, target: str) -> Compared:
    """One program on both sides, each in the same copy of it."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / "program"
        shutil.copytree(folder, copy)
        (found,) = compared([f"{copy}:{target}"], Path(place))
        return Compared(name, [Row(name, *_facts(row)) for row in found.rows], found.ended)


def _facts(row: Row) -> tuple[str, int, Counter[str], Counter[str]]:
    return row.place, row.warnings, row.calls, row.told


# ---- the tables


def explained(piece: str) -> str:
    """Why it is not counted alike, or goes another way; empty: nobody says."""
    return EXPLAINED.get(piece, "")


def held(one: Compared, verdict: str) -> str:
    """What is in the tables for a verdict, and why it is not "agree"."""
    if verdict == "agree":
        return verdict
    why = explained(one.piece)
    if why.startswith(PARTED):
        return why
    return f"{WORDS[verdict]}: {why}" if why else WORDS[verdict]


PARTED = "parted"
WORDS = {"agree": "agree", "once": "agree, counted once", "differ": "differ"}


def construct_rows(found: list[Compared]) -> list[str]:
    """A row of the table for each line of constructs.py that waits, on either side."""
    return [
        _row(row, one) for one in found if one.piece.startswith("constructs/") for row in one.rows
    ]


def _row(row: Row, one: Compared) -> str:
    name = row.piece.partition("/")[2]
    cells = (
        f"{name}: `{code(row.place)}`",
        _times(row.warnings),
        _listed(row.calls),
        _listed(row.told),
        held(one, row.verdict),
        VERSIONS.get(name, ""),
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def code(place: str) -> str:
    """The line that waits, without its comment."""
    file, line = _line(place)
    text = linecache.getline(str(ROOT / FILES[file]), line).partition("  #")[0].strip()
    return text if len(text) <= _WIDE else text[: _WIDE - 3] + "..."


_WIDE = 72


def _times(count: int) -> str:
    return str(count) if count else "none"


def _listed(counts: Counter[str]) -> str:
    return (
        ", ".join(
            f"{what} x{times}" if times > 1 else what for what, times in sorted(counts.items())
        )
        or "none"
    )


def quiet(found: list[Compared]) -> list[str]:
    """Constructs in which neither side waits."""
    return [
        one.piece.partition("/")[2]
        for one in found
        if one.piece.startswith("constructs/") and not one.rows
    ]


def summary_rows(found: list[Compared]) -> list[str]:
    """A row for each set of pieces: how many, agreeing, counted once, parted, differing."""
    sets: dict[str, Counter[str]] = {}
    for one in found:
        parted = one.verdict == "differ" and explained(one.piece).startswith(PARTED)
        verdict = PARTED if parted else one.verdict
        sets.setdefault(one.piece.partition("/")[0], Counter())[verdict] += 1
    names = {**FILES, "examples": "examples/", "corpus": "the corpus of planted defects"}
    return [
        f"| {names[name]} | {counts.total()} | {counts['agree']} | {counts['once']} "
        f"| {counts[PARTED]} | {counts['differ']} |"
        for name, counts in sets.items()
    ]


def other_rows(found: list[Compared]) -> list[str]:
    """A row for each other piece that is not counted alike on both sides."""
    return [
        f"| {one.piece} | {_times(_warnings(one))} | {_times(_waits(one))} | {_times(_told(one))} "
        f"| {held(one, one.verdict)} |"
        for one in found
        if not one.piece.startswith("constructs/") and one.verdict != "agree"
    ]


def program_rows(found: list[Compared]) -> list[str]:
    """A row for each program: lines that wait, and how often they do in its steps."""
    return [
        f"| {one.piece} | {len(one.rows)} | {_times(_warnings(one))} | {_times(_waits(one))} "
        f"| {_times(_told(one))} | {held(one, one.verdict)} |"
        for one in found
    ]


def _warnings(one: Compared) -> int:
    return sum(row.warnings for row in one.rows)


def _waits(one: Compared) -> int:
    return sum(row.waits for row in one.rows)


def _told(one: Compared) -> int:
    return sum(row.told.total() for row in one.rows)


@functools.cache
def documented() -> list[str]:
    """The lines of the page that shows these tables."""
    return (ROOT / "docs/log/gpu-facts.md").read_text("utf-8").splitlines()


def main() -> None:
    """Write the tables."""
    with tempfile.TemporaryDirectory() as folder:
        snippets = compared(list(SNIPPETS), Path(folder))
    others = [program_compared(*one) for one in programs()]
    print(f"Torch {torch.__version__}.\n")
    for head, rows in (
        (
            "| of | in all | agree | agree, counted once | parted on zeros | differ |",
            summary_rows(snippets + others),
        ),
        (
            "| construct | torch warns | calls that block | rehearsal | held | other versions |",
            construct_rows(snippets),
        ),
        ("| snippet | torch warns | waits | rehearsal | held |", other_rows(snippets)),
        ("| program | lines | torch warns | waits | rehearsal | held |", program_rows(others)),
    ):
        print(head, "|" + "---|" * (head.count("|") - 1), *rows, "", sep="\n")
    print(f"Neither side waits in: {', '.join(quiet(snippets))}.")


if __name__ == "__main__":
    main()
