"""The folder that a run leaves: ``manifest.json``, one file for each probe, and the user's sources
as they were.

Rows are JSON lines, flushed at the end of each step, so that whatever kills the process leaves a
readable recording. ``docs/recording.md`` describes every part and its rows.
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Union, cast, overload

import msgspec

from auditor import redaction
from auditor.errors import plain
from auditor.model import Outcome, Site
from auditor.model.devices import DeviceInfo, Input, device_named, input_named
from auditor.recordings.row import PassRow
from auditor.recordings.row import Row as TypedRow
from auditor.recordings.schema import PARTS
from auditor.recordings.schema.run import SiteRow, StepRow
from auditor.recordings.writer import (
    MANIFEST,
    SITES,
    SOURCES,
    RecordingWriter,
    decode_source,
    path_from,
    write_manifest,
)
from auditor.typed_reading import convert, decoder

# -- the files of a part ---------------------------------------------------------------------------

ROW_LIMIT = 4_000_000
"""Rows read from one part at most."""

BYTE_LIMIT = 64 * 2**20
"""Bytes of one row at most."""

CHECKED = frozenset({"steps", "device_times", "batches", "sites", "training", "lapses"})
"""Parts whose ill-typed rows are left out as plain objects, too: everything leans on them."""

NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Unreadable = dict[str, str]
"""By part: a sentence about the first row that could not be read, or about its file."""


def typed_rows(path: Path, part: str, unreadable: Unreadable) -> Iterator[TypedRow]:
    """Rows of a part's types. Other lines are left out and listed in ``unreadable``, except a last
    line that was cut off: the run was killed while writing it.
    """
    decode = _decoder(part).decode
    for number, line in _lines(path):
        try:
            row: TypedRow = decode(line)
            _require_stamp(row)
        except msgspec.ValidationError as error:
            unreadable.setdefault(
                part,
                f"line {number} of {part}.jsonl is not a row that this version reads: "
                f"{plain(str(error), 200)}",
            )
            continue
        except NO_JSON:
            if line.endswith(b"\n"):
                unreadable.setdefault(part, f"line {number} of {part}.jsonl is damaged")
            continue
        yield row


def plain_rows(path: Path, part: str) -> Iterator[dict[str, Any]]:
    """The rows as plain objects, whatever keys they have."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    check = _decoder(part).decode if part in CHECKED else None
    for _, line in _lines(path):
        try:
            fields = decode(line)
            if check is not None:
                _require_stamp(check(line))
        except NO_JSON:
            continue
        yield fields


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        yield from enumerate(islice(iter(lambda: file.readline(BYTE_LIMIT), b""), ROW_LIMIT), 1)


@cache
def _decoder(part: str) -> msgspec.json.Decoder[Any]:
    return decoder(Union[PARTS[part]])  # noqa: UP007  # made of a tuple


def _require_stamp(row: TypedRow) -> None:
    if isinstance(row, PassRow) and (not row.pass_name or row.step < 0):
        raise msgspec.ValidationError("Object missing `pass` or `step`")


# -- the manifest ----------------------------------------------------------------------------------


class _Pass(TypedDict):
    name: str
    steps: int


class _Probe(TypedDict, total=False):
    error: str
    parts: list[str]


class _Error(TypedDict, total=False):
    type: str
    message: str
    traceback: str
    step: int | None
    pass_name: str | None
    file: str | None
    line: int
    function: str
    time_us: float
    under: list[str]


class Manifest(TypedDict, total=False):
    """Fields of ``manifest.json`` that readers need; one of another type is refused."""

    target: str
    argv: list[str]
    cwd: str
    kind: str
    target_files: list[str]
    configs: list[str]
    steps: int
    warmup: int
    world_size: int
    rank: int | None
    device: str
    passes: list[_Pass]
    planned: list[_Pass]
    spared: dict[str, int]
    cut: dict[str, int]
    parts: list[str]
    probes: dict[str, _Probe]
    outcome: Outcome | Literal["not run"]
    error: _Error | None
    environment: dict[str, str]
    sources: dict[str, str]
    masked: dict[str, list[int]]
    masked_arguments: list[str]
    withheld: list[str]
    recorded_at: str
    in_process: bool
    null_device: dict[str, str]
    warnings: list[str]


# -- the folder ------------------------------------------------------------------------------------

SCHEMA = "audit-recording/1"
TRACE = "trace.json.gz"
OOM_RUN = "oom"
AT_OOM = ("oom_snapshot.pickle", "oom_snapshot.pickle.gz")
AT_END = ("snapshot.pickle", "snapshot.pickle.gz")
Row = dict[str, Any]
R = TypeVar("R", bound=TypedRow)

NOWHERE = SiteRow(id=-1, file="?", line=0, function="")
"""Where a row points that names no site of its recording."""

__all__ = [
    "MANIFEST",
    "SITES",
    "Recording",
    "RecordingWriter",
    "UnreadableRecording",
    "read_manifest",
    "write_manifest",
]


class UnreadableRecording(Exception):
    """The folder is not a recording that this version can read; the message is one sentence."""


def read_manifest(folder: Path) -> Row:
    """The manifest of a recording.

    Raises :class:`UnreadableRecording` when there is none, or it is of a schema that this version
    does not know.
    """
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            manifest = msgspec.json.decode(file.read(BYTE_LIMIT))
    except FileNotFoundError:
        raise UnreadableRecording(f"{folder} holds no recording: {MANIFEST} is missing") from None
    except (OSError, *NO_JSON) as error:
        raise UnreadableRecording(f"{path} cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        found = manifest.get("schema") if isinstance(manifest, dict) else None
        raise UnreadableRecording(
            f"{path} has schema {str(found)[:80]!r}; this version reads {SCHEMA!r}"
        )
    try:
        convert(manifest, Manifest)
    except msgspec.ValidationError as error:
        raise UnreadableRecording(f"{path} does not keep to {SCHEMA}: {error}") from None
    return manifest


class Recording:
    """A recording opened for reading. Never changes what it reads."""

    def __init__(self, folder: Path, manifest: Row | None = None) -> None:
        self.folder = folder
        self.manifest = read_manifest(folder) if manifest is None else manifest
        self._unreadable: Unreadable = {}

    @property
    def input(self) -> Input:
        """What is judged: a run, or a file that stands alone."""
        return input_named(self.manifest.get("device"))

    @property
    def device(self) -> DeviceInfo:
        """What the run could use; the host where a file stands alone."""
        environment = self.manifest.get("environment") or {}
        return device_named(self.manifest.get("device"), str(environment.get("device", "")))

    @property
    def outcome(self) -> Outcome:
        """How the run ended; ``killed`` if the process died before it wrote an outcome."""
        return cast("Outcome", self.manifest.get("outcome", "killed"))

    @property
    def rank(self) -> int:
        """Of the process that was recorded; 0 if it was the only one."""
        return int(self.manifest.get("rank") or 0)

    def inside(self, name: str) -> Recording | None:
        """A recording inside this one (``replay``, ``rehearsal``); None if it cannot be read."""
        try:
            return Recording(self.folder / name)
        except UnreadableRecording:
            return None

    @property
    def trace(self) -> Path | None:
        """The file that torch.profiler wrote, if there is one."""
        path = self.folder / TRACE
        return path if path.is_file() else None

    @cached_property
    def to_oom(self) -> Recording | None:
        """The recording of a further run up to the out-of-memory error, whose snapshot has an
        allocation history from the beginning; None if there is none.
        """
        ended = self.manifest.get("outcome") == "oom"
        again = self.inside(OOM_RUN) if ended else None
        held = again is not None and any((again.folder / name).is_file() for name in AT_OOM)
        return again if held else None

    @property
    def snapshot(self) -> Path | None:
        """The CUDA memory snapshot: of the first out-of-memory error if the run ended by one, else
        of the last step's end.

        Torch also reports errors that it gets over by itself (cuDNN asks for less workspace): those
        do not count.
        """
        ended = self.manifest.get("outcome") == "oom"
        names, folders = AT_OOM + AT_END if ended else AT_END + AT_OOM, [self.folder]
        if self.to_oom is not None:
            folders.insert(0, self.to_oom.folder)
        found = (folder / name for folder in folders for name in names)
        return next((path for path in found if path.is_file()), None)

    def has(self, part: str) -> bool:
        """True if the probe that writes this part ran (it may have seen nothing)."""
        return self.part_file(part) is not None

    def part_file(self, part: str) -> Path | None:
        """The file of a part in this run's folder; None if there is none, or something else has
        its name (a link may lead anywhere, a pipe never ends), which :meth:`unreadable` tells.
        """
        path = self.folder / f"{part}.jsonl"
        try:
            mode = path.lstat().st_mode
        except OSError:
            return None
        if not stat.S_ISREG(mode):
            self._unreadable.setdefault(part, f"{part}.jsonl is no regular file, and was not read")
            return None
        return path

    @overload
    def rows(self, kind: type[R]) -> list[R]: ...

    @overload
    def rows(self, kind: str) -> list[Row]: ...

    def rows(self, kind: type[R] | str) -> list[R] | list[Row]:
        """All whole rows of one type, in order; a last line that was cut off (a killed run) is left
        out.

        Of a part's name all of its rows come as plain objects.
        """
        if isinstance(kind, str):
            path = self.part_file(kind)
            return [] if path is None else list(plain_rows(path, kind))
        return [row for row in self.typed_rows(kind.part) if isinstance(row, kind)]

    def typed_rows(self, part: str) -> list[TypedRow]:
        """All rows of a part, each of its type; other lines are listed in :meth:`unreadable`."""
        path = self.part_file(part)
        return [] if path is None else list(typed_rows(path, part, self._unreadable))

    def unreadable(self, part: str) -> str:
        """A sentence about the first row left out as not of the part's type; empty if none was."""
        return self._unreadable.get(part, "")

    def damage(self) -> list[str]:
        """A sentence about each part that could not be read, or not whole, of those asked for."""
        for part in PARTS:
            self.part_file(part)
        return [self._unreadable[part] for part in sorted(self._unreadable)]

    def run_step(self, pass_name: str, step: int) -> int:
        """A step's number in its run: from 0, warm-up and earlier passes included."""
        starts, steps = self._pass_starts
        return step + starts.get(pass_name, steps)

    @property
    def ended_in(self) -> int | None:
        """Number in the run of the step in which an error ended it; None if none did."""
        error = self.manifest.get("error") or {}
        step = error.get("step")
        return None if step is None else self.run_step(error.get("pass_name") or "", step)

    @cached_property
    def _pass_starts(self) -> tuple[dict[str, int], int]:
        """The number in the run of each pass's first step, and how many steps there are."""
        starts: dict[str, int] = {}
        rows = self.rows(StepRow)
        for number, row in enumerate(rows):
            starts.setdefault(row.pass_name, number)
        return starts, len(rows)

    @property
    def cwd(self) -> str:
        """Working directory of the run."""
        return str(self.manifest.get("cwd", ""))

    @cached_property
    def _site_rows(self) -> dict[int, SiteRow]:
        return {row.id: row for row in self.rows(SiteRow)}

    @cached_property
    def _sites(self) -> dict[int, Site]:
        return {}

    def site_row(self, number: int) -> SiteRow:
        """The raw site row: file, line, function, if known opcode, col, end_line, end_col, via."""
        return self._site_rows.get(number, NOWHERE)

    def via(self, number: int) -> str:
        """The library's function below the line of a site; empty if the line itself acts."""
        return self.site_row(number).via or ""

    def site(self, number: int) -> Site:
        """A site as findings show it: file relative to the run's directory, and the line's text."""
        if number not in self._sites:
            row = self.site_row(number)
            self._sites[number] = self.site_at(row.file, row.line, row.function)
        return self._sites[number]

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
        """As :meth:`source_bytes`, with masked secrets taken from the user's own file below
        ``root`` (default: where the run was).

        For what runs or edits the user's files on this machine; nothing that is passed on may hold
        it.
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
            # splitlines() knows more separators than Python
            cache[file] = decode_source(raw).split("\n") if raw is not None else []
        return cache[file]
