"""Where real traces with their ground truth lie beside this checkout, if they do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_CANDIDATES = [Path(__file__).resolve().parents[2] / "shared" / "traces", Path("/work/shared/traces")]
FOLDER = next((path for path in _CANDIDATES if (path / "truth.json").is_file()), None)
TRUTH: dict[str, Any] = json.loads((FOLDER / "truth.json").read_text()) if FOLDER else {"files": {}, "rank_sets": {}}
TRACES = sorted(key for key, entry in TRUTH["files"].items() if entry.get("kind") == "trace")
