"""The user's ``[tool.audit]`` of the nearest ``pyproject.toml``, checked against the rules."""

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from auditor.errors import AuditProblem
from auditor.judging import catalogue
from auditor.model import editors
from auditor.model.prices import NOTE_BELOW
from auditor.rule import Rule

FAIL_ON = ("error", "warning", "note", "never")
KNOWN = (
    *("select", "ignore", "fail-on", "note-below", "editor", "interactive-figures"),
    *("per-file-ignores", "rules"),
)


@dataclass(frozen=True)
class Settings:
    """What ``pyproject.toml`` says; the command line wins over it."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: str = "never"
    per_file_ignores: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    knobs: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    note_below: float = NOTE_BELOW
    editor: str = editors.DEFAULT
    interactive_figures: bool = False
    left: tuple[str, ...] = ()
    """Codes in it of rules that left."""


def load(start: Path, rules: tuple[type[Rule], ...], *, lenient: bool = False) -> Settings:
    """Settings of the nearest ``pyproject.toml`` at or above ``start``; defaults if there is none.

    ``lenient`` passes over the knobs of unknown rules: a pack that cannot be imported may bring
    them. Raises :class:`AuditProblem` naming the file, the key and what is allowed.
    """
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            return _read_settings(path, rules, lenient=lenient)
    return Settings()


def _read_settings(path: Path, rules: tuple[type[Rule], ...], *, lenient: bool) -> Settings:
    try:
        tools = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise AuditProblem(f"{path} is not valid TOML: {error}") from None
    except OSError as error:
        raise AuditProblem(f"{path} cannot be read: {error.strerror}") from None
    table = _table(path, "[tool.audit]", tools.get("audit", {}) if isinstance(tools, dict) else {})
    for key in table:
        if key not in KNOWN:
            raise AuditProblem(f"{path}: [tool.audit] has no setting {key!r}", _suggest(key, KNOWN))
    fail_on = table.get("fail-on", "never")
    if fail_on not in FAIL_ON:
        raise AuditProblem(f"{path}: fail-on = {fail_on!r}; it is one of {', '.join(FAIL_ON)}")
    ignores = _table(path, "[tool.audit.per-file-ignores]", table.get("per-file-ignores", {}))
    select, ignore = _codes(path, "select", table), _codes(path, "ignore", table)
    per_file = {pattern: _codes(path, pattern, ignores) for pattern in ignores}
    tables = _table(path, "[tool.audit.rules]", table.get("rules", {}))
    return Settings(
        select,
        ignore,
        fail_on,
        per_file,
        {
            code: _knobs(path, code, values, rules)
            for code, values in tables.items()
            if code not in catalogue.LEFT
            and (not lenient or any(rule.code == code for rule in rules))
        },
        _share(path, "note-below", table.get("note-below", NOTE_BELOW)),
        _editor(path, table.get("editor", editors.DEFAULT)),
        _flag(path, "interactive-figures", table.get("interactive-figures", False)),
        catalogue.that_left((*select, *ignore, *sum(per_file.values(), ()), *tables)),
    )


def _flag(path: Path, key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise AuditProblem(f"{path}: {key} = {value!r}; it is true or false")


def _editor(path: Path, value: Any) -> str:
    if isinstance(value, str) and (not value or editors.is_template(value)):
        return value
    raise AuditProblem(
        f"{path}: editor = {value!r}; it is the address of a file in an editor, as in editor = "
        f'"{editors.DEFAULT}", or "" for none',
        f"its scheme is one of {', '.join(editors.SCHEMES)}",
    )


def _share(path: Path, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise AuditProblem(
            f"{path}: {key} = {value!r}; it is a share of the step from 0 (never) to 1, as in "
            f"{key} = {NOTE_BELOW}"
        )
    return float(value)


def _table(path: Path, name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise AuditProblem(f"{path}: {name} must be a table, and is {value!r}")
    return value


def _codes(path: Path, key: str, table: Mapping[str, Any]) -> tuple[str, ...]:
    value = table.get(key, ())
    if not isinstance(value, (list, tuple)) or not all(isinstance(code, str) for code in value):
        raise AuditProblem(
            f'{path}: {key} must be a list of codes, as in {key} = ["SYNC", "MEM005"]'
        )
    return tuple(code.upper() for code in value)


def _knobs(
    path: Path, code: str, values: Mapping[str, Any], rules: tuple[type[Rule], ...]
) -> Mapping[str, Any]:
    known = {rule.code: rule for rule in rules}
    if code not in known:
        raise AuditProblem(
            f"{path}: [tool.audit.rules.{code}]: there is no such rule",
            _suggest(code, tuple(known)),
        )
    knobs = known[code].knobs()
    values = _table(path, f"[tool.audit.rules.{code}]", values)
    for name, value in values.items():
        if name in catalogue.KNOBS.get(code, "").split():
            there = f"`audit explain {code}` lists those that there are"
            raise AuditProblem(f"{path}: {code}.{name} left in 0.3; delete it", there)
        if name not in knobs:
            raise AuditProblem(f"{path}: {code} has no knob {name!r}", _suggest(name, tuple(knobs)))
        default = knobs[name][0]
        if isinstance(value, bool) != isinstance(default, bool) or not isinstance(
            value, (int, float, type(default))
        ):
            raise AuditProblem(
                f"{path}: {code}.{name} = {value!r}; expected {type(default).__name__} (default "
                f"{default!r})"
            )
    return dict(values)


def _suggest(word: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
