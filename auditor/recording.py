"""The folder that a run leaves: ``manifest.json``, one file for each probe, and the user's sources as they were.

Rows are JSON lines, flushed at the end of each step, so that whatever kills the process leaves a readable recording.
``docs/recording.md`` describes every part and its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from auditor import redaction
from auditor.model import Site
from auditor.recording_joined import RERUN, joined, taken_passes
from auditor.recording_shapes import ROWS, Manifest
from auditor.recording_sources import SOURCES, decode_source, path_from
from auditor.recording_writer import MANIFEST, SITES, RecordingWriter, write_manifest

SCHEMA = "audit-recording/1"
TRACE = "trace.json.gz"
AT_OOM = ("oom_snapshot.pickle", "oom_snapshot.pickle.gz")
AT_END = ("snapshot.pickle", "snapshot.pickle.gz")
ROW_LIMIT = 4_000_000
"""Rows read from one part at most (a recording may come from a stranger)."""

BYTE_LIMIT = 64 * 2**20
"""Bytes of a manifest, or of one row, at most."""

Row = dict[str, Any]


__all__ = ["MANIFEST", "SITES", "Recording", "RecordingWriter", "UnreadableRecording", "read_manifest", "write_manifest"]

_NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class UnreadableRecording(Exception):
    """The folder is not a recording that this version can read; the message is one sentence for the user."""


def read_manifest(folder: Path) -> Row:
    """The manifest of a recording.

    Raises :class:`UnreadableRecording` when there is none, or it is of a schema that this version does not know.
    """
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            manifest = msgspec.json.decode(file.read(BYTE_LIMIT))
    except FileNotFoundError:
        raise UnreadableRecording(f"{folder} holds no recording: {MANIFEST} is missing") from None
    except (OSError, *_NO_JSON) as error:
        raise UnreadableRecording(f"{path} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        found = manifest.get("schema") if isinstance(manifest, dict) else None
        raise UnreadableRecording(f"{path} has schema {str(found)[:80]!r}; this version reads {SCHEMA!r}")
    try:
        msgspec.convert(manifest, Manifest)
    except msgspec.ValidationError as error:
        raise UnreadableRecording(f"{path} does not keep to {SCHEMA}: {error}") from None
    return manifest


class Recording:
    """A recording opened for reading. Never changes what it reads."""

    def __init__(self, folder: Path, manifest: Row | None = None) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder) if manifest is None else manifest

    def inside(self, name: str) -> Recording | None:
        """The recording of a further run that lies inside this one (``replay``, ``rehearsal``); None if it cannot be read."""
        try:
            return Recording(self.folder / name)
        except UnreadableRecording:
            return None

    @property
    def trace(self) -> Path | None:
        """The file that torch.profiler wrote, if there is one."""
        again = self.rerun
        if again is not None and "trace" in self.taken:
            return again.trace
        path = self.folder / TRACE
        return path if path.is_file() else None

    @cached_property
    def rerun(self) -> Recording | None:
        """The recording of a second run, up to the step before the one in which this run failed.

        The passes that :attr:`taken` names are those of the second run, and ``rows`` reads both as one recording.
        """
        again = self.inside(RERUN) if self.taken else None
        if again is not None:
            again.taken = frozenset()  # it has none of its own, whatever a stranger's folder says
        return again

    @cached_property
    def taken(self) -> frozenset[str]:
        """Names of the passes that are read from the second run; empty where there was none."""
        return taken_passes(self.manifest)

    @property
    def snapshot(self) -> Path | None:
        """The CUDA memory snapshot: of the first out-of-memory error if the run ended by one, else of the last step's end.

        Torch also reports errors that it gets over by itself (cuDNN asks for less workspace): those do not count.
        """
        ended = self.manifest.get("outcome") == "oom"
        names, folders = AT_OOM + AT_END if ended else AT_END + AT_OOM, [self.folder]
        if self.rerun is not None:  # what is read of its steps goes with its snapshot; how the run ended, with its own
            folders.insert(1 if ended or not self.taken & {"memory", "loud"} else 0, self.rerun.folder)
        found = (folder / name for folder in folders for name in names)
        return next((path for path in found if path.is_file()), None)

    def has(self, part: str) -> bool:
        """True if the probe that writes this part ran (it may have seen nothing)."""
        again = self.rerun
        return (self.folder / f"{part}.jsonl").is_file() or (again is not None and again.has(part))

    def rows(self, part: str) -> list[Row]:
        """All whole rows of a part, in order; a last line that was cut off (a killed run) is left out."""
        path = self.folder / f"{part}.jsonl"
        own = list(self._decoded(path)) if path.is_file() else []
        return own if self.rerun is None else joined(own, self.rerun.rows(part), self.taken)

    def _decoded(self, path: Path) -> Iterator[Row]:
        decode, shapes = msgspec.json.Decoder(dict[str, Any]).decode, ROWS.get(path.stem, ())
        with path.open("rb") as file:
            for line in islice(iter(lambda: file.readline(BYTE_LIMIT), b""), ROW_LIMIT):
                try:
                    row = decode(line)
                    for shape in shapes:
                        msgspec.convert(row, shape)
                except _NO_JSON:
                    continue
                yield row

    def run_step(self, pass_name: str, step: int) -> int:
        """Number in the run of a pass's step: from 0, warm-up and earlier passes included, as the program's own loop counts."""
        rows = self.rows("steps")
        return step + next((number for number, row in enumerate(rows) if row["pass"] == pass_name), len(rows))

    @property
    def cwd(self) -> str:
        """Working directory of the run."""
        return str(self.manifest.get("cwd", ""))

    @cached_property
    def _site_rows(self) -> dict[int, Row]:
        return {row["id"]: row for row in self.rows(SITES)}

    def site_row(self, number: int) -> Row:
        """The raw site row: file, line, function, and where known opcode, col, end_line, end_col, via."""
        return self._site_rows.get(number, {"file": "?", "line": 0, "function": ""})

    def site(self, number: int) -> Site:
        """A site as findings show it: file relative to the run's directory, and the line's text."""
        row = self.site_row(number)
        return self.site_at(row["file"], row["line"], row["function"])

    def site_at(self, file: str, line: int, function: str = "") -> Site:
        """A site from its parts; ``file`` may be absolute."""
        lines = self.source(file)
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        return Site(self.relative(file), line, function, text)

    def relative(self, file: str) -> str:
        """As :func:`path_from` the run's directory."""
        return path_from(self.cwd, file)

    def source_bytes(self, file: str) -> bytes | None:
        """The bytes of a user file as they were when recorded; None if it was not kept."""
        stored = self.manifest.get("sources", {})
        name = stored.get(self.relative(file)) if isinstance(stored, dict) else None
        if not isinstance(name, str) or "/" in name or "\\" in name or name.startswith("."):
            return None
        path = self.folder / SOURCES / name
        try:  # a link must not lead out: what is read here is shown in reports
            inside = path.resolve().parent == self.folder.resolve() / SOURCES
            return path.read_bytes() if inside and path.is_file() else None
        except (OSError, ValueError):
            return None

    def original_bytes(self, file: str, root: Path | None = None) -> bytes | None:
        """As :meth:`source_bytes`, with masked secrets taken from the user's own file below ``root`` (default: where the run was).

        For what runs or edits the user's files on this machine; nothing that is passed on may hold it.
        """
        recorded = self.source_bytes(file)
        if recorded is None or self.relative(file) not in (self.manifest.get("masked") or {}):
            return recorded
        try:
            live = ((root or Path(self.cwd)) / self.relative(file)).read_bytes()
        except (OSError, ValueError):
            return recorded
        return redaction.restored(recorded, live, Path(file).suffix)

    def source(self, file: str) -> list[str]:
        """Lines of a user file as recorded, without line ends; empty if it was not kept."""
        cache: dict[str, list[str]] = self.__dict__.setdefault("_lines", {})
        if file not in cache:
            raw = self.source_bytes(file)
            cache[file] = (
                decode_source(raw).split("\n") if raw is not None else []
            )  # splitlines() knows more separators than Python
        return cache[file]
