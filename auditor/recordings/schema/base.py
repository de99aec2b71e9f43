"""What every row is: a struct with the fields of one JSON line, the part that it belongs to, and a
sentence for each field.
"""

from __future__ import annotations

from copy import copy
from typing import Annotated, Any, ClassVar

import msgspec


def doc(text: str) -> msgspec.Meta:
    """What a field holds, for docs/recording.md."""
    return msgspec.Meta(description=text)


def older(value: Any) -> Any:
    """Default of a field that recordings of earlier versions lack. We always write it, also where
    it has this value.

    Other fields with a default are left out of the row where they have it.
    """
    return msgspec.field(default_factory=lambda: copy(value))


class Row(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A row of :attr:`part`. Keys of later versions are ignored; a value of another type makes the
    row unreadable.
    """

    part: ClassVar[str] = ""
    when: ClassVar[str] = ""
    """In which passes it is written, for docs/recording.md."""


class PassRow(Row, kw_only=True):
    """A row of one step. Who adds it to a recording stamps it; a file's row without both is not
    read.
    """

    pass_name: Annotated[str, doc("the pass")] = msgspec.field(name="pass", default="")
    step: Annotated[int, doc("0-based within the pass")] = -1


class Item(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Something that a row holds more than one of."""


At = Annotated[int, doc("the line: a number in `sites`")]
MaybeAt = Annotated[
    int | None, doc("the line: a number in `sites`, null where none of the user's is on the stack")
]
N = Annotated[int, doc("how often")]
Us = Annotated[float, doc("host time inside (us)")]
