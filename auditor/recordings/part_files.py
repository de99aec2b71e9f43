"""Reading a part: JSON lines to rows of its types, or to plain objects. A recording may be a
stranger's: all of it is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Union

import msgspec

from auditor.errors import plain
from auditor.recordings.row import PassRow, Row
from auditor.recordings.schema import PARTS
from auditor.typed_reading import decoder

ROW_LIMIT = 4_000_000
"""Rows read from one part at most."""

BYTE_LIMIT = 64 * 2**20
"""Bytes of one row at most."""

CHECKED = frozenset({"steps", "device_times", "batches", "sites", "training", "lapses"})
"""Parts whose rows are left out also as plain objects where they are not of the part's type:
everything leans on them.
"""

NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

Unreadable = dict[str, str]
"""By part: a sentence about the first row that could not be read, or about its file."""


def typed_rows(path: Path, part: str, unreadable: Unreadable) -> Iterator[Row]:
    """Rows of a part's types. What is none is left out and told in ``unreadable``, but for a last
    line that was cut off: the run was killed as it wrote it.
    """
    decode = _decoder(part).decode
    for number, line in _lines(path):
        try:
            row: Row = decode(line)
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
    """The same as plain objects, whatever keys they have."""
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


def _require_stamp(row: Row) -> None:
    if isinstance(row, PassRow) and (not row.pass_name or row.step < 0):
        raise msgspec.ValidationError("Object missing `pass` or `step`")
