"""A look is judged in another process, at the lowest priority, while training goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

BOOT = (
    "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv[1]]; "
    "from auditor.extensions.longrun.judge_look import main; main(*sys.argv[2:])"
)
JUDGED = "judged.json"
"""What the judge tells of its report, beside it."""

LOG = "judge.log"
"""What it prints: nothing, where all is well."""

LIMIT_S = 900.0
"""A judge that takes longer is ended."""

BYTES = 4 << 20


class Judge:
    """The process that judges one look."""

    def __init__(self, folder: Path, plan: str, codes: str, now: float) -> None:
        self.folder = folder
        self._began = now
        root = str(Path(__file__).resolve().parents[3])
        with open(folder / LOG, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, root, str(folder.resolve()), plan, codes],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def done(self, now: float) -> dict[str, Any] | None:
        """What it says; None as long as it works."""
        if self._process.poll() is None:
            if now - self._began < LIMIT_S:
                return None
            self._process.kill()
            self._process.wait()
            return {"error": f"judging took more than {LIMIT_S:.0f} s and was ended"}
        return self._said()

    def wait(self, seconds: float) -> None:
        """Give it so long to end. What is not done then is done without us."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def _said(self) -> dict[str, Any]:
        try:
            with open(self.folder / JUDGED, "rb") as file:
                found = json.loads(file.read(BYTES))
        except (OSError, ValueError):
            return {"error": f"judging ended with exit code {self._process.returncode}"}
        return found if isinstance(found, dict) else {"error": "judging said nothing"}
