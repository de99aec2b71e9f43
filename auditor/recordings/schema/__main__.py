"""``python -m auditor.recordings.schema > docs/recording.md``: what stands around the parts in
``page.md``, and a table for each part's rows from their types.
"""

import inspect
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal

import msgspec

from auditor.recordings.row import Item, PassRow, Row
from auditor.recordings.schema import PARTS

_FRAME = Path(__file__).parent / "page.md"

_HERE = "<!-- parts -->\n"

_WORDS = {str: "text", int: "integer", float: "number", bool: "true, false", NoneType: "null"}

Fields = dict[str, tuple[str, str]]
"""By key: type and meaning."""


def markdown() -> str:
    """The whole page."""
    parts = (
        line
        for part, rows in PARTS.items()
        for line in (f"### {part}\n", *(line for row in rows for line in _row(row)))
    )
    return _FRAME.read_text("utf-8").replace(_HERE, "\n".join(parts) + "\n")


def _row(row: type[Row]) -> Iterator[str]:
    tag, stamped = row.__struct_config__.tag, issubclass(row, PassRow)
    kind = f"`{row.__struct_config__.tag_field}` = `{tag}`. " if tag is not None else ""
    when = f"({row.when}) " if row.when else ""
    yield f"{when}{kind}{_prose(row)}" + ("\n" if stamped else " No `pass`/`step`.\n")
    yield from _table(_fields(row, skip=PassRow if stamped else Row))
    for item in _items(row):
        yield f"{item.__name__}: {_prose(item)}\n"
        yield from _table(_fields(item, skip=Item))


def _prose(struct: type[msgspec.Struct]) -> str:
    return " ".join(
        line.strip() for line in (inspect.getdoc(struct) or "").splitlines() if line.strip()
    )


def _table(fields: Fields) -> Iterator[str]:
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    yield from (f"| `{key}` | {kind} | {meaning} |" for key, (kind, meaning) in fields.items())
    yield ""


def _fields(struct: type[msgspec.Struct], skip: type[msgspec.Struct]) -> Fields:
    hints = typing.get_type_hints(struct, include_extras=True)
    own = [
        field
        for field in msgspec.structs.fields(struct)
        if field.name not in skip.__struct_fields__
    ]
    order = list(hints)  # with keyword-only fields msgspec has those of a base last
    own.sort(key=lambda field: order.index(field.name))
    return {field.encode_name: _described(hints[field.name], field) for field in own}


def _described(hint: Any, field: msgspec.structs.FieldInfo) -> tuple[str, str]:
    left_out = field.default is not msgspec.NODEFAULT
    kind, said = _split(hint)
    words = _words(kind, optional=left_out and field.default is None)
    return words, f"{'*optional* ' if left_out else ''}{said}".replace("|", "\\|")


def _split(hint: Any) -> tuple[Any, str]:
    if typing.get_origin(hint) is not Annotated:
        return hint, ""
    kind, *notes = typing.get_args(hint)
    return kind, " ".join(
        each.description for each in notes if isinstance(each, msgspec.Meta) and each.description
    )


def _words(kind: Any, *, optional: bool = False) -> str:
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) in (UnionType, typing.Union):
        return " or ".join(
            _words(each)
            for each in arguments
            if each is not msgspec.UnsetType and not (optional and each is NoneType)
        )
    if typing.get_origin(kind) is Literal:
        return "text"
    if typing.get_origin(kind) is list:
        return f"array of {_words(arguments[0])}"
    if typing.get_origin(kind) is dict:
        return f"object of {_words(arguments[1])}"
    return _WORDS.get(kind) or str(kind.__name__)


def _items(struct: type[msgspec.Struct]) -> Iterator[type[Item]]:
    """Types of what its lists hold, where these are objects."""
    for hint in typing.get_type_hints(struct).values():
        for inner in typing.get_args(hint):
            if isinstance(inner, type) and issubclass(inner, Item):
                yield inner


if __name__ == "__main__":
    sys.stdout.write(markdown())
