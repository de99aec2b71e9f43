"""Whether every key that a recording holds is declared by the type of its row."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Union

import msgspec

from auditor.recordings.row import PassRow, Row
from auditor.recordings.schema import PARTS


def undeclared(folder: Path) -> list[str]:
    """A sentence for each row below ``folder`` with a key or a type that its part does not declare,
    or without pass and step.
    """
    return [told for path in sorted(folder.rglob("*.jsonl")) for told in _of(path)]


def _of(path: Path) -> Iterator[str]:
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = _decoder(path.stem).decode(line)
        except (KeyError, msgspec.ValidationError) as error:
            yield f"{path.name} line {number}: {error!r}"
            continue
        if isinstance(row, PassRow) and (not row.pass_name or row.step < 0):
            yield f"{path.name} line {number}: no pass or step"


@cache
def _decoder(part: str) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(Union[tuple(_strict(row) for row in PARTS[part])])  # noqa: UP007  # made of a tuple


def _strict(row: type[Row]) -> type[Row]:
    config = row.__struct_config__
    more = {} if config.tag is None else {"tag_field": config.tag_field, "tag": config.tag}
    facts = {"kw_only": True, "forbid_unknown_fields": True}
    return type(row)(row.__name__, (row,), {"__module__": row.__module__}, **facts, **more)
