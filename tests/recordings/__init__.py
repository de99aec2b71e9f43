"""Recordings made on a GPU machine by the project's own recorder (``tests/gpu/record.py``), so that
CPU tests can judge them.
"""

import ast
import hashlib
import tarfile
from pathlib import Path

from auditor.recordings.folder import Recording

HERE = Path(__file__).resolve().parent


def path_of(code: str, kind: str, name: str) -> Path:
    """Where the recording of a rule's case lies."""
    return HERE / f"{code.lower()}-{kind}-{name}.tar.gz"


def fingerprint(path: Path, name: str) -> str:
    """Identity of a case: its text and where it stands (findings name lines)."""
    text = path.read_text()
    node = next(
        n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == name
    )
    body = ast.get_source_segment(text, node) or ""
    return f"{node.lineno}:{hashlib.sha256(body.encode()).hexdigest()[:16]}"


def unpack(packed: Path, folder: Path) -> Recording:
    """Open a packed recording in ``folder``."""
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return Recording(folder)


def pack(folder: Path, packed: Path) -> None:
    """Pack a recording."""
    packed.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(packed, "w:gz") as archive:
        for entry in sorted(folder.rglob("*")):
            archive.add(entry, arcname=str(entry.relative_to(folder)), recursive=False)
