"""The JSON Schema of report.json, and its page (``python -m auditor.reports.schema``)."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Node = dict[str, Any]

_FILE = Path(__file__).parent / "report.schema.json"

_HEAD = """\
# report.json, schema `{name}`

{description}

This page is written from `reports/report.schema.json` (JSON Schema 2020-12) by `python -m auditor.reports.schema > docs/report-json.md`.
A field marked *optional* may be absent in reports of other versions. Times are microseconds, memory is bytes.
"""


def schema() -> Node:
    """The schema as it is in ``report.schema.json``."""
    loaded: Node = json.loads(_FILE.read_text("utf-8"))
    return loaded


def markdown() -> str:
    """``docs/report-json.md``: one table for the report and one for each object in it."""
    whole = schema()
    parts = [
        _HEAD.format(name=whole["$id"], description=whole["description"]),
        "## The report",
        *_table(whole),
    ]
    for name, node in whole["$defs"].items():
        parts += [f'\n## <a id="{name}"></a>{name}', f"{node['description']}\n", *_table(node)]
    return "\n".join(parts) + "\n"


def _table(node: Node) -> Iterator[str]:
    if node.get("type") == "array":
        yield from (
            f"{number}. {item['description']}" for number, item in enumerate(node["prefixItems"], 1)
        )
        return
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for name, field in node["properties"].items():
        optional = "" if name in node["required"] else "*optional* "
        meaning = str(field.get("description", "")).replace("|", "\\|")
        yield f"| `{name}` | {_type(field)} | {optional}{meaning} |"


def _type(field: Node) -> str:
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name}](#{name})"
    if "oneOf" in field:
        return " or ".join(_type(part) for part in field["oneOf"])
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
    return " or ".join(_kind(kind, field) for kind in kinds)


def _kind(kind: str, field: Node) -> str:
    if kind == "array":
        inner = field["items"] or {"type": ", ".join(_type(item) for item in field["prefixItems"])}
        return f"array of {_type(inner)}" if field["items"] else f"[{inner['type']}]"
    if kind == "object" and "additionalProperties" in field:
        return f"object of {_type(field['additionalProperties'])}"
    return kind


if __name__ == "__main__":
    sys.stdout.write(markdown())
