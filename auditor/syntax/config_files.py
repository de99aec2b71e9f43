"""Configuration files as data: which files are such, what is in them, and which not to copy."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from auditor import redaction

if TYPE_CHECKING:
    import configparser

DOCUMENTS = frozenset({".yaml", ".yml", ".toml", ".json", ".ini", ".cfg"})
"""Suffixes of files that hold keys and values."""

INI = frozenset({".ini", ".cfg"})
"""Those that hold text only: whole numbers, true, false, yes, no, on, off mean themselves."""

SCRIPTS = frozenset({".sh", ".env"})
"""Suffixes of files that set environment variables line by line."""

SUFFIXES = DOCUMENTS | SCRIPTS

MOST_BYTES = 256 * 1024
"""Larger files are data, not settings."""

MOST_FILES = 32

_FLAGS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}

_SECRETS = re.compile(
    r"(?i:api[_-]?key|access[_-]?key|secret|passw|credential|auth[_-]?token|private[_-]?key|webhook|\bbearer\b)"
    r"|[A-Z]_TOKEN|^\s*(?:token|pwd)\s*[:=]"
    r"|://[^\s/:@]+:[^\s/@]+@",  # a name and a password in an address
    re.MULTILINE,
)

Where = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the top."""


class UnreadableConfig(Exception):
    """The text is not what its suffix says, or too much; the message ends a sentence."""


def suffix_of(file: str) -> str:
    """Suffix by which a file is read: ``.env`` for ``.env.local`` too; empty for others."""
    name = os.path.basename(file).lower()
    if name == ".env" or name.startswith(".env."):
        return ".env"
    suffix = os.path.splitext(name)[1]
    return suffix if suffix in SUFFIXES else ""


def read_document(text: str, suffix: str) -> Any:
    """A document's data. Raises :class:`UnreadableConfig`, also for a key twice in JSON."""
    try:
        if suffix == ".json":
            return json.loads(text, object_pairs_hook=_unique)
        if suffix in INI:
            return _ini(text)
        if suffix == ".toml":
            import tomllib

            return tomllib.loads(text)
        return _yaml(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableConfig(
            f"does not parse ({str(error).splitlines()[0] if str(error) else 'too deep'})"
        ) from None


def values_in(data: Any, path: Where = ()) -> Iterator[tuple[Where, Any]]:
    """Every value that is neither a mapping nor a list, with its path."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from values_in(value, (*path, key))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from values_in(value, (*path, number))
    else:
        yield path, data


def worth_keeping(files: Iterable[str], cwd: str) -> tuple[list[str], list[str]]:
    """Of the files that a target opened, those that may be copied into a recording, and those that
    look as if they held a secret.

    Shell scripts beside the target count, too. What is kept lies below ``cwd`` and is small:
    recordings and patches are passed on.
    """
    beside = sorted(str(path) for path in Path(cwd).glob("*.sh")) if cwd else []
    chosen: list[str] = []
    withheld: list[str] = []
    for file in dict.fromkeys([*files, *beside]):
        if len(chosen) == MOST_FILES:
            break
        if not suffix_of(file) or not _is_small_and_inside(Path(file), Path(cwd)):
            continue
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, ValueError):  # gone, or not text
            continue
        (withheld if _shows_secret(text, suffix_of(file)) else chosen).append(file)
    return chosen, withheld


def _is_small_and_inside(file: Path, cwd: Path) -> bool:
    try:
        return (
            file.resolve().is_relative_to(cwd.resolve())
            and file.is_file()
            and file.stat().st_size <= MOST_BYTES
        )
    except (OSError, ValueError):  # gone
        return False


def _shows_secret(text: str, suffix: str) -> bool:
    try:
        values = tuple(values_in(read_document(text, suffix))) if suffix in DOCUMENTS else ()
    except UnreadableConfig:
        values = ()
    return bool(_SECRETS.search(text)) or redaction.holds_secret(text.encode(), suffix, values)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _ini(text: str) -> dict[str, dict[str, Any]]:
    import configparser

    parser = configparser.RawConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys as they are written
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise UnreadableConfig(f"does not parse ({str(error).splitlines()[0]})") from None
    sections = [*parser.sections(), *([parser.default_section] if parser.defaults() else [])]
    return {
        name: {key: _meant(value) for key, value in _own(parser, name).items()} for name in sections
    }


def _own(parser: configparser.RawConfigParser, section: str) -> dict[str, str]:
    """A section's keys, without those that it has from the defaults."""
    defaults = parser.defaults()
    if section == parser.default_section:
        return dict(defaults)
    return {
        key: value
        for key, value in parser.items(section)
        if key not in defaults or defaults[key] != value
    }


def _meant(value: str | None) -> object:
    text = (value or "").lower()
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    return _FLAGS.get(text, value)


def _yaml(text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise UnreadableConfig("cannot be read without PyYAML") from None
    try:
        # An alias repeats what stands elsewhere: one change would be several, and nested ones take
        # forever to compare.
        if any(
            isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)
        ):
            raise UnreadableConfig("has aliases")
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UnreadableConfig(f"does not parse ({str(error).splitlines()[0]})") from None
