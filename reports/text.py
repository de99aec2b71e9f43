"""Text of the user's program, made safe to show: nothing hidden, steering or endless."""

import json
import re

_COMMAND = re.compile(r"^([^\S\n]*)::(?=[\w-]+[^\n]*::)", re.MULTILINE)
_MICRO = re.compile(r"(?<=\d) us\b")
_MARKED = re.compile(r"##(?=(?:vso|teamcity)?\[)")

PATH_LIMIT = 4096
"""Characters of a path that are always shown whole (PATH_MAX of Linux): no path is ever cut."""


def visible(text: str) -> str:
    r"""``text`` with control, direction, zero-width and lone surrogate characters written as
    escapes (``\x1b``, ``\u202e``).

    Line feeds and tabs stay. What comes back can be encoded as UTF-8 and cannot carry an ANSI
    sequence.
    """
    if text.isprintable():
        return text
    return "".join(
        char
        if char.isprintable() or char in "\n\t"
        else char.encode("unicode_escape").decode("ascii")
        for char in text.replace("\r\n", "\n")
    )


def micro(text: str) -> str:
    """Microseconds as a page spells them."""
    return _MICRO.sub(" µs", text)


def inert(text: str) -> str:
    """``text`` without lines that a CI system would take for a command: ``::error::`` becomes ``:
    :error::``.

    GitHub reads ``::name key=value::message`` at the start of a line, blanks before it or not, and
    ``##[name]`` anywhere (actions/runner, ActionCommand.cs); Azure Pipelines reads ``##vso[...]``
    and ``##[name]`` at the start of one, and TeamCity ``##teamcity[``.
    """
    if "::" not in text and "##" not in text:
        return text
    return unmarked(_COMMAND.sub(r"\1: :", text))


def unmarked(text: str) -> str:
    """``text`` without marks that begin a command: ``##[error]`` becomes ``## [error]``."""
    return _MARKED.sub("## ", text)


def escaped_json(text: str) -> str:
    """A JSON document that means the same, with no character that steers a terminal and no mark of
    a CI system's command.

    Both can only stand in its strings, where they are written as escapes.
    """
    if not text.isascii():
        text = "".join(
            char if char.isprintable() or char in "\n\t" else json.dumps(char)[1:-1]
            for char in text
        )
    return text.replace("##", "#\\u0023")


def one_line(text: str, limit: int = 2000) -> str:
    """``text`` made visible, on one line, and not longer than about ``limit`` characters."""
    return shorten(visible(text).replace("\n", "\\n").replace("\t", "    "), limit)


def path(text: str) -> str:
    """A file name made visible; whole unless it is longer than any file system allows."""
    shown = one_line(text, len(text) * 10 + 1)
    if len(shown) <= PATH_LIMIT:
        return shown
    half = PATH_LIMIT // 2
    return f"{shown[:half]}...[{len(shown) - 2 * half} more characters]...{shown[-half:]}"


def shorten(text: str, limit: int) -> str:
    """``text``, or its first ``limit`` characters and how many are left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]} ... [{len(text) - limit:,} more characters]"


def tail_lines(text: str, limit: int, width: int = 500) -> list[str]:
    """The last ``limit`` lines of ``text``, made visible; says what was left out."""
    lines = text.rstrip("\n").split("\n")
    shown = [shorten(visible(line), width) for line in lines[-limit:]]
    if len(lines) > limit:
        shown.insert(0, f"[{len(lines) - limit:,} lines left out]")
    return shown
