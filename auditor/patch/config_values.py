"""Sets one value of a configuration file: the parser says which of the possible places it is."""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any

from auditor.model import Edit
from auditor.patch.module import Refused, Splice, expect_line, unify_line_ends
from auditor.syntax.config_files import (
    DOCUMENTS,
    INI,
    SCRIPTS,
    UnreadableConfig,
    read_document,
    suffix_of,
)

_LITERAL = r"""(?P<value>"[^"\n]*"|'[^'\n]*'|[^\s,\[\]{}#"'&*!|>][^\s,\]}#]*)"""
_PLAIN = re.compile(r"-?\d{1,18}|True|False")
_VARIABLES = frozenset({"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"})
_SETTING = re.compile(r"[A-Za-z0-9_:.,\[\]-]+")
"""Nothing that a shell reads as more than text."""
_BEFORE_VARIABLE = re.compile(r"[ \t]*((export|env)[ \t]+)?([A-Za-z_]\w*=[^\s;&|#`$]*[ \t]+)*")
_MOST_PLACES = 50


def set_values(raw: bytes, edits: Sequence[Edit]) -> bytes:
    """The file's bytes with the values set; nothing else changes. Raises :class:`Refused`."""
    file = edits[0].site.file
    try:
        text = raw.decode()  # a byte order mark stays, as a character
    except UnicodeDecodeError:
        raise Refused("the file is not valid utf-8") from None
    suffix = suffix_of(PurePosixPath(file).name)
    lines = unify_line_ends(text).split("\n")
    for edit in edits:
        expect_line(lines, edit)
    if suffix in SCRIPTS:
        splices = [_variable(text, edit) for edit in edits]
        return _spliced(text, splices).encode()
    if suffix not in DOCUMENTS:
        raise Refused(f"{file} is not a configuration file of a kind that is known")
    data = _parse(text, suffix)
    result = _spliced(text, [_value(text, suffix, data, edit) for edit in edits])
    wanted = data
    for edit in edits:
        wanted = _changed(wanted, _path(edit), _literal(edit))
    if not _same(_parse(result, suffix), wanted):
        raise Refused("the changed text would not mean exactly the intended change")
    return result.encode()


def _spliced(text: str, splices: Sequence[Splice]) -> str:
    chosen = set(splices)
    if len({splice.start for splice in chosen}) != len(chosen):
        raise Refused("an earlier edit wants another value")
    for splice in sorted(chosen, reverse=True):
        text = text[: splice.start] + splice.text + text[splice.end :]
    return text


# -- documents -------------------------------------------------------------------------------------


def _value(text: str, suffix: str, data: Any, edit: Edit) -> Splice:
    """The one splice that, made alone, sets the edit's value."""
    path, value = _path(edit), _literal(edit)
    wanted = _changed(data, path, value)
    if _same(wanted, data):
        raise Refused(f"`{edit.keyword}` is already {edit.value}")
    found = [
        splice
        for splice in _places(text, suffix, str(path[-1]), value)
        if _comes_to(text, suffix, splice, wanted)
    ]
    if len(found) != 1:
        raise Refused(f"it is not clear where `{edit.keyword}` is set")
    return found[0]


def _places(text: str, suffix: str, key: str, value: object) -> Iterator[Splice]:
    """Everything that looks like the key with a value of its own."""
    separator = "=" if suffix == ".toml" else "[:=]" if suffix in INI else ":"
    pattern = re.compile(
        rf"""(?<![\w-])["']?{re.escape(key)}["']?[ \t]*{separator}[ \t]*{_LITERAL}"""
    )
    for number, match in enumerate(pattern.finditer(text)):
        if number == _MOST_PLACES:
            raise Refused(f"`{key}` is in too many places")
        yield Splice(*match.span("value"), _written(value, like=match["value"]))


def _written(value: object, *, like: str) -> str:
    text = json.dumps(value)
    return text.capitalize() if isinstance(value, bool) and like in ("True", "False") else text


def _comes_to(text: str, suffix: str, splice: Splice, wanted: Any) -> bool:
    try:
        return _same(_parse(_spliced(text, [splice]), suffix), wanted)
    except Refused:
        return False


def _parse(text: str, suffix: str) -> Any:
    try:
        return read_document(text.removeprefix("\ufeff"), suffix)
    except UnreadableConfig as reason:
        raise Refused(f"the file {reason}") from None


def _path(edit: Edit) -> tuple[str | int, ...]:
    """The edit's ``keyword``, a JSON list of keys and positions: keys may hold dots."""
    try:
        path = json.loads(edit.keyword)
    except ValueError:
        path = None
    if (
        not isinstance(path, list)
        or not path
        or not all(isinstance(key, (str, int)) for key in path)
    ):
        raise Refused(f"`{edit.keyword}` is not the place of a value")
    return tuple(path)


def _literal(edit: Edit) -> object:
    value = edit.value.strip()
    if not _PLAIN.fullmatch(value):
        raise Refused(f"`{edit.value}` is not a whole number, True or False")
    return value == "True" if value in ("True", "False") else int(value)


def _changed(data: Any, path: tuple[str | int, ...], value: object) -> Any:
    """A copy with the value at ``path`` replaced. Raises :class:`Refused` if it is not there."""
    if not path:
        if isinstance(data, (dict, list)):
            raise Refused("the place does not hold a single value")
        return value
    key, rest = path[0], path[1:]
    if isinstance(data, dict) and key in data:
        return {**data, key: _changed(data[key], rest, value)}
    if isinstance(data, list) and isinstance(key, int) and 0 <= key < len(data):
        return [*data[:key], _changed(data[key], rest, value), *data[key + 1 :]]
    raise Refused(f"the file has no `{key}` there")


def _same(left: Any, right: Any) -> bool:
    """Equal, and of the same types all through: 1 is neither True nor 1.0; NaN is NaN."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right) or (left != left and right != right)  # noqa: PLR0124 - NaN


# -- variables of the environment ------------------------------------------------------------------


def _variable(text: str, edit: Edit) -> Splice:
    """The splice where the file sets the variable once already; its other options stay."""
    name = edit.keyword
    if name not in _VARIABLES or not _SETTING.fullmatch(edit.value):
        raise Refused(f"`{name}={edit.value}` is not a setting of the allocator")
    found = list(
        re.finditer(
            rf"""(?<![\w$]){name}=(?P<quote>["']?)(?P<value>[\w:.,\[\]>-]*)(?P=quote)(?=[ \t;\r\n]|\Z)""",
            text,
        )
    )
    if len(found) != 1 or len(re.findall(rf"\b{name}\b", text)) != 1:
        raise Refused(f"it is not clear where `{name}` is set")
    if not _BEFORE_VARIABLE.fullmatch(re.split(r"[\r\n]", text[: found[0].start()])[-1]):
        raise Refused(f"`{name}` does not stand where a command or line sets it")
    # new options replace those of the same name
    options = {item.partition(":")[0]: item for item in _options(found[0]["value"])}
    options.update((item.partition(":")[0], item) for item in _options(edit.value))
    merged = ",".join(options.values())
    if merged == found[0]["value"]:
        raise Refused(f"`{name}` is already {merged}")
    return Splice(*found[0].span("value"), merged)


def _options(text: str) -> list[str]:
    """Split at commas outside brackets: ``roundup_power2_divisions:[256:1,512:2]`` is one."""
    return [item for item in re.split(r",(?![^\[]*\])", text) if item]
