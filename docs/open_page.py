"""The page of the site that opens a report.json or a trace in the browser alone (``make docs``): two
files that need no other, each under a policy that allows its own scripts by hash and no connection.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

HERE = Path(__file__).resolve().parent / "open"
REPORTS = HERE.parents[1] / "reports" / "assets"
MOST = 480 << 20
"""Bytes of a file that are read: a browser's longest text has 512 Mi characters."""

_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
_HEAD = re.compile(r"<head[^>]*>")


def pages() -> Iterator[tuple[str, str]]:
    """Path and text of each file; without the trace's where its viewer is not installed."""
    from auditor.extensions.tensorboard_tab import pages as tab

    path = tab.viewer_file()
    yield "open/index.html", report_page(viewer=path is not None)
    if path is not None:
        yield "open/trace.html", trace_page(path)
        licences = distribution("torch-tb-profiler").read_text("LICENSE") or ""
        yield "open/trace-viewer-license.txt", licences


def report_page(*, viewer: bool) -> str:
    """The page that files are dropped on; ``viewer`` says that trace.html lies beside it."""
    from auditor.extensions.tensorboard_tab import pages as tab
    from auditor.judging.catalogue import own_rules
    from auditor.model import SCHEMA

    known = {
        "schema": SCHEMA,
        "most": MOST,
        "viewer": viewer,
        "rules": [rule.code for rule in own_rules()],
        "patterns": tab.PATTERNS,
        "outermost": sorted(tab.OUTERMOST),
    }
    woken = (REPORTS / "report.js").read_text("utf-8") + (REPORTS / "filter.js").read_text("utf-8")
    parts = {
        "style": (REPORTS / "report.css").read_text("utf-8") + _own("open.css"),
        "known": json.dumps(known).replace("<", "\\u003c"),
        "script": f"const wakeReport = () => {{\n{woken}\n}};\n{_own('open.js')}",
    }
    page = _own("open.html")
    for name, text in parts.items():
        page = page.replace(f"{{{{{name}}}}}", text)
    (style,) = _STYLE.findall(page)
    policy = (
        f"default-src 'none'; script-src {tab.hashes(page)}; style-src {tab.hashes(f'<script>{style}</script>')}; "
        "frame-src 'self'; img-src data:; base-uri 'none'; form-action 'none'"
    )
    return page.replace("{{policy}}", policy)


def trace_page(path: Path) -> str:
    """The tab's viewer of traces with its files inside it."""
    from auditor.extensions.tensorboard_tab import pages as tab

    css, elements, viewer = (
        (tab.ASSETS / name).read_text("utf-8")
        for name in ("viewer.css", "custom_elements.js", "viewer.js")
    )
    mark = 'document.documentElement.dataset.dropped = "";\n'
    page = tab.with_scripts(
        path,
        f"<style>{css}</style><script>{mark}{elements}</script>",
        f"<script>{viewer}</script>",
    )
    policy = (
        f"default-src 'none'; script-src {tab.hashes(page)}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'self'; form-action 'none'"  # Catapult sets a base: its own
    )
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    return _HEAD.sub(lambda head: head[0] + meta, page, count=1)


def _own(name: str) -> str:
    return (HERE / name).read_text("utf-8")
