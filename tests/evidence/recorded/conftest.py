"""A recording made of a few rows, for tests of the tables that are built from them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from auditor.evidence.table import Evidence
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.recordings.writer import store_sources

LINES = "\n".join(f"line{number} = {number}" for number in range(1, 30))


@pytest.fixture
def seen(tmp_path: Path) -> Callable[..., Evidence]:
    """``seen(sites=[3, (4, {"via": ...})], backward=[{"at": 0, ...}])``: evidence of a recording
    whose lines are those of a ``trainer.py``. Rows name sites by their place in the list.
    """

    def record(
        text: str = LINES,
        device: str = "cpu",
        sites: Iterable[int | tuple[int, dict[str, Any]]] = (),
        manifest: dict[str, Any] | None = None,
        inside: str = "",
        **parts: list[dict[str, Any]],
    ) -> Evidence:
        home, folder = tmp_path / "home", tmp_path / "recording" / inside
        home.mkdir(exist_ok=True)
        (home / "trainer.py").write_text(text)
        writer = RecordingWriter(folder)
        for number, place in enumerate(sites):
            line, more = place if isinstance(place, tuple) else (place, {})
            assert writer.site(str(home / "trainer.py"), line, "step", **more) == number
        for part, rows in parts.items():
            writer.touch(part)
            for row in rows:
                writer.add_fields(part, row)
        writer.close()
        stored = store_sources(folder, str(home), iter([str(home / "trainer.py")]))
        facts = {"schema": SCHEMA, "cwd": str(home), "device": device, "outcome": "completed"}
        write_manifest(folder, {**facts, "sources": stored, "environment": {}, **(manifest or {})})
        return Evidence(Recording(folder))

    return record


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where ``trainer.py`` of :func:`seen` lies."""
    return tmp_path / "home"
