"""report.json, written with the documented fields of ``audit-report/1`` and read back whole."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from auditor.model import SCHEMA, Edit, Finding, Remedy, Report
from auditor.typed_reading import convert

from . import summary

SIZE_LIMIT = 64 * 1024 * 1024
"""Bytes of a report that are read at most (a report may come from a stranger)."""

Object = dict[str, Any]

UNWRITTEN = ("changes",)
"""Fields of a finding that only rules and charts use."""

UNWRITTEN_OF_REPORT = ("editor_links", "folder", "interactive_figures")
"""Fields of the report that mean nothing on another machine."""

CHARTS = ("series", "layers")
"""Fields that hold a chart in each item: thousands of numbers, too many for one per line."""

_LEADING = ("schema", "tool", "run", "verdicts", "findings", "warnings", "caveats")


class Json:
    """``report.json``: the contract with machines (docs/report-json.md)."""

    name = "json"
    suffix = ".json"

    def render(self, report: Report) -> bytes:
        """Indented UTF-8 JSON, the numbers of a chart on one line.

        Characters that UTF-8 cannot hold (lone surrogates of odd file names) are escaped.
        """
        written = _written(report)
        words = msgspec.json.format(
            _encoded({name: value for name, value in written.items() if name not in CHARTS}),
            indent=2,
        )
        charts = [_lines(name, written[name]) for name in CHARTS]
        return b",\n".join((words.removesuffix(b"\n}"), *charts)) + b"\n}\n"


def read(path: Path) -> Report:
    """The report in a file, of which no more than ``SIZE_LIMIT`` is read. Raises ``OSError``, and
    ``ValueError`` as :func:`load`.
    """
    with path.open("rb") as file:
        return load(file.read(SIZE_LIMIT + 1))


def load(data: bytes) -> Report:
    """The report that :class:`Json` wrote. Unknown fields are passed over.

    Raises ``ValueError`` with one sentence for anything that is not such a report.
    """
    if len(data) > SIZE_LIMIT:
        raise ValueError(
            f"the report has more than {SIZE_LIMIT:,} bytes, which is the most that is read"
        )
    try:
        written = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"this is not a report: it is not JSON ({error})") from None
    if not isinstance(written, dict) or written.get("schema") != SCHEMA:
        found = written.get("schema") if isinstance(written, dict) else None
        if found is None:
            raise ValueError("this is not a report: it names no schema")
        raise ValueError(
            f"this is not a report that can be read: its schema is {str(found)[:80]!r}, expected "
            f"{SCHEMA!r}"
        )
    try:
        _bound(written)
        return convert(_in_model_shape(written), Report)
    except (ValueError, RecursionError) as error:  # msgspec.ValidationError is a ValueError
        raise ValueError(f"this report does not keep to {SCHEMA}: {error}") from None


def _bound(written: Any) -> None:
    """Raise ``ValueError`` for a number that a float cannot hold, and that cannot be printed."""
    waiting = [written]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        elif isinstance(value, int) and abs(value) >= 2**64:
            raise ValueError("a number of more than 64 bits")


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(value))


def _lines(name: str, items: list[Any]) -> bytes:
    inside = b",".join(b"\n    " + _encoded(item) for item in items)
    return b'  "%s": [%s]' % (name.encode(), inside + b"\n  " if items else b"")


def _written(report: Report) -> Object:
    built: Object = msgspec.to_builtins(replace(report, findings=()))
    built["findings"] = [_finding(finding) for finding in report.findings]
    for name in UNWRITTEN_OF_REPORT:
        del built[name]
    return {name: built.pop(name) for name in _LEADING} | built


def _finding(finding: Finding) -> Object:
    bare = replace(
        finding, remedy=None, severity=summary.severity(finding), seen_on=summary.seen_on(finding)
    )
    built: Object = msgspec.to_builtins(bare)
    for name in UNWRITTEN:
        del built[name]
    places = [_place(place) for place in built.pop("places")]
    leading = {
        name: built.pop(name) for name in ("key", "code", "name", "severity", "message", "site")
    }
    last = {
        name: built.pop(name)
        for name in ("verified", "grows", "negligible", "follows", "baseline_state")
    } | {"places": places}
    return leading | built | {"remedy": _remedy(finding.remedy or Remedy(""))} | last


def _place(built: Object) -> Object:
    site: Object = built.pop("site")
    built.pop("changes", None)  # what was read from a file has only what stood there
    leading = {name: built.pop(name) for name in ("code", "key")}
    return leading | site | {"expression": built.pop("text")} | built


def _remedy(remedy: Remedy) -> Object:
    return {
        "text": remedy.text,
        "safe": remedy.safe,
        "diff": remedy.diff,
        "config": remedy.config,
        "refused": remedy.refused,
        "edits": [_edit(edit) for edit in remedy.edits],
    }


def _edit(edit: Edit) -> Object:
    built: Object = msgspec.to_builtins(edit)
    site: Object = built.pop("site")
    return site | built


def _in_model_shape(written: Object) -> Object:
    """The object in the shape of the model; msgspec refuses what has another shape."""
    findings = written.get("findings")
    series = written.get("series")
    kept = {name: value for name, value in written.items() if name not in UNWRITTEN_OF_REPORT}
    return kept | {
        "findings": [_read_finding(row) for row in findings]
        if isinstance(findings, list)
        else findings,
        "series": [_read_series(row) for row in series]
        if isinstance(series, list)
        else series or (),
    }


def _read_finding(row: Any) -> Any:
    if not isinstance(row, dict):
        return row
    shaped = {name: value for name, value in row.items() if name not in UNWRITTEN}
    if row.get("basis") == "forecast":  # written by 0.2
        shaped["basis"] = "none"
    if isinstance(row.get("places"), list):
        shaped["places"] = [_read_place(place) for place in row["places"]]
    remedy = row.get("remedy")
    if isinstance(remedy, dict):
        edits = remedy.get("edits")
        edits = [_read_edit(edit) for edit in edits] if isinstance(edits, list) else edits or ()
        said = any(remedy.get(name) for name in ("text", "diff", "config", "refused")) or edits
        shaped["remedy"] = remedy | {"edits": edits} if said else None
    return shaped


def _read_edit(row: Any) -> Any:
    return row | {"site": _read_site(row)} if isinstance(row, dict) else row


def _read_place(row: Any) -> Any:
    return (
        {name: value for name, value in row.items() if name not in UNWRITTEN}
        | {"site": _read_site(row), "text": row.get("expression", "")}
        if isinstance(row, dict)
        else row
    )


def _read_site(row: Object) -> Object:
    return {name: row[name] for name in ("file", "line", "function", "text") if name in row}


def _read_series(row: Any) -> Any:
    if not isinstance(row, dict) or not isinstance(row.get("y"), list):
        return row
    return row | {"y": [math.nan if value is None else value for value in row["y"]]}


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(name): _encodable(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_encodable(item) for item in value]
    return value
