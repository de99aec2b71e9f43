"""Mutants on disk: a file, or a folder of which some files are mutants (a recording, a job's ranks,
runs that are viewed).
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from fuzz import mutate

SUFFIX = {
    "trace": ".json",
    "snapshot": ".pickle",
    "checkpoint": ".pt",
    "report": ".json",
    "config": ".yaml",
}
WEIGHTS = {
    "trace": 3,
    "snapshot": 3,
    "checkpoint": 5,
    "config": 2,
    "report": 2,
    "recording": 3,
    "ranks": 2,
    "ranked": 1,
    "view": 2,
}
"""How often a kind is taken beside the others."""

NAMES = (
    "run",
    "a" * 200,
    "\u202e",
    "\x1b[2J",
    "::error::x",
    "<script>",
    "a&run=b",
    "%2e%2e",
    "%s%n",
    "two\nlines",
    "caf\udce9",
    "recording",
)
"""Names of folders that a stranger may pack."""

RECORDING = "recording/"

PAGE = 1 << 16
"""Bytes of a report's page that are served: what is behind them is plotly's."""


@dataclass(frozen=True)
class Seeds:
    """Whole files: by kind, and those of a small audit by their path in its folder."""

    files: tuple[tuple[str, bytes], ...]
    recorded: dict[str, bytes]

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds that mutants can be made of."""
        return (
            tuple(WEIGHTS)
            if self.recorded
            else tuple(dict.fromkeys(kind for kind, _ in self.files))
        )

    def write(self, chance: random.Random, kind: str, path: Path) -> Path:
        """Write one mutant; returns its path, which is ``path`` with the suffix of its kind."""
        make = {
            "recording": self._recording,
            "ranked": self._ranked,
            "ranks": self._ranks,
            "view": self._view,
        }.get(kind)
        if make is not None:
            path.mkdir()
            make(chance, path)
            return path
        path = path.with_suffix(SUFFIX[kind])
        seed = (
            self.recorded["report.json"]
            if kind == "report"
            else chance.choice([each for of, each in self.files if of == kind])
        )
        path.write_bytes(mutate.mutant(chance, kind, seed))
        return path

    def _recording(self, chance: random.Random, folder: Path, **facts: object) -> None:
        """``facts`` stand in the manifest, before it may be mutated."""
        parts = {
            name.removeprefix(RECORDING): part
            for name, part in self.recorded.items()
            if name.startswith(RECORDING)
        }
        if facts:
            parts["manifest.json"] = json.dumps(json.loads(parts["manifest.json"]) | facts).encode()
        hit = set(chance.sample(sorted(parts), chance.choice((1, 1, 3))))
        for name, part in parts.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(
                mutate.mutant(chance, "recording", part) if name in hit and part else part
            )

    def _ranked(self, chance: random.Random, folder: Path) -> None:
        """Recordings of several ranks, as ``--nproc`` leaves them."""
        size = chance.choice((2, 2, 3))
        for rank in range(size):
            ended = chance.choice(
                (
                    {},
                    {},
                    {
                        "outcome": "raised",
                        "error": {"type": "ValueError", "message": "x", "time_us": 5},
                    },
                )
            )
            self._recording(chance, folder / f"rank{rank}", rank=rank, world_size=size, **ended)

    def _ranks(self, chance: random.Random, folder: Path) -> None:
        """Traces of a job's ranks, some of them mutants, some of which say that they are another
        rank.
        """
        size = chance.choice((1, 2, 2, 2, 2, 3, 5))
        seeds = [each for of, each in self.files if of == "rank"]
        for rank in range(size):
            seed = seeds[rank % len(seeds)]
            seed = mutate.mutant(chance, "trace", seed) if chance.random() < 0.6 else seed
            (folder / f"rank{rank}.json{'.gz' if seed[:2] == mutate.GZIP else ''}").write_bytes(
                seed
            )

    def _view(self, chance: random.Random, folder: Path) -> None:
        """Runs as ``audit view`` serves them: a report, its page, its trace."""
        for name in chance.sample(NAMES, chance.choice((1, 2))):
            run = folder / name
            (run / "recording").mkdir(parents=True)
            for file in ("report.json", "report.html", "recording/trace.json.gz"):
                seed = self.recorded[file][:PAGE]
                changed = chance.random() < (0.8 if file == "report.json" else 0.3)
                (run / file).write_bytes(mutate.mutant(chance, "report", seed) if changed else seed)
