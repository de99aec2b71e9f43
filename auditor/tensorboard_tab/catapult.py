"""The trace viewer (Catapult) as a page of ours, from the files of the installed torch-tb-profiler
package.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "torch_tb_profiler"
FILE = Path("static") / "trace_viewer_full.html"

MISSING = (
    "the trace viewer is part of the package torch-tb-profiler, and that is not installed: pip "
    "install torch-tb-profiler"
)

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_BEFORE = '<link rel="stylesheet" href="viewer.css"><script src="custom_elements.js"></script>'
_AFTER = '<script src="viewer.js"></script>'


@dataclass(frozen=True)
class Viewer:
    """The page, and the content security policy under which it works: its own scripts by hash, and
    nothing from elsewhere.
    """

    page: bytes
    policy: str


def viewer() -> Viewer | None:
    """The viewer's page, with our scripts around its own; None where the package or its file is
    missing.
    """
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(found.submodule_search_locations[0]) / FILE
    return _made(path) if path.is_file() else None


@functools.cache
def _made(path: Path) -> Viewer:
    # As a page of its own the file needs no HTML imports, which browsers dropped. Its scripts stay
    # byte for byte.
    text = path.read_text("utf-8")
    begin = text.index("<template")
    end = text.rindex("</body>")
    page = text[:begin] + _BEFORE + text[begin:end] + _AFTER + text[end:]
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in _SCRIPT.findall(text))
    return Viewer(
        page.encode(),
        f"default-src 'none'; script-src 'self' {hashes}; style-src 'self' 'unsafe-inline'; "
        "connect-src 'self'; "
        "img-src 'self' data:; frame-ancestors 'self'; base-uri 'self'; form-action 'none'",
    )


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
