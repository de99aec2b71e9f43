"""Comments that silence rules: ``# audit: ignore[SYNC001]``."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch

SILENCE = re.compile(r"#\s*audit:\s*ignore(?:\[([A-Z0-9,\s]+)\])?")

ALL = "*"


def silenced(line: str) -> set[str] | None:
    """Codes and families of a comment, :data:`ALL` where it names none; None without one."""
    match = SILENCE.search(line) if "audit:" in line else None
    if match is None:
        return None
    return {code.strip() for code in match[1].split(",")} if match[1] else {ALL}


def ignored_in(file: str, per_file: Mapping[str, Iterable[str]]) -> set[str]:
    """Codes, families and ``all`` that the patterns of ``per-file-ignores`` silence in a file."""
    return {code for pattern, codes in per_file.items() if fnmatch(file, pattern) for code in codes}


def names_of(code: str) -> set[str]:
    """What stands for a code in such a comment, and in options: itself, its family, all."""
    return {code, code.rstrip("0123456789"), ALL}
