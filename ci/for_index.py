"""Prepare a checkout for a package index: name the repository that it comes from, and lead the
README's links there, since an index shows that page alone. Run by .github/workflows/release.yml.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HOME = "https://github.com/OWNER/torch-step-audit"
LINK = re.compile(r"(!?)(\[[^]]*\]\()(?!\w+:|#)([^)\s]+)\)")


def problems(root: Path, tag: str) -> list[str]:
    """Why this checkout is not what the tag says; empty where it is."""
    found = []
    for name, pattern in (
        ("pyproject.toml", r'^version = "([^"]+)"$'),
        ("auditor/__init__.py", r'^__version__ = "([^"]+)"$'),
        ("CITATION.cff", r"^version: (\S+)$"),
        ("ci/conda/recipe.yaml", r'^  version: "([^"]+)"$'),
        ("CHANGELOG.md", r"^## (\S+) \(\d{4}-\d{2}-\d{2}\)$"),
    ):
        version = re.search(pattern, (root / name).read_text("utf-8"), re.MULTILINE)
        if version is None or f"v{version[1]}" != tag:
            said = version[1] if version else "no version with a date"
            found.append(f"{name} has {said}, the tag is {tag}")
    return found


def prepare(root: Path, tag: str, repository: str) -> None:
    """Write the repository ``owner/name`` and its tag into what an index shows."""
    home = f"https://github.com/{repository}"
    for name in ("pyproject.toml", "CITATION.cff", "ci/Dockerfile", "ci/conda/recipe.yaml"):
        path = root / name
        path.write_text(path.read_text("utf-8").replace(HOME, home), "utf-8")
    readme = root / "README.md"
    readme.write_text(absolute(readme.read_text("utf-8"), f"{home}/{{}}/{tag}"), "utf-8")


def absolute(markdown: str, place: str) -> str:
    """The page with its relative links leading to ``place``, a pattern for "blob" or "raw"."""
    return LINK.sub(
        lambda link: f"{link[1]}{link[2]}{place.format('raw' if link[1] else 'blob')}/{link[3]})",
        markdown,
    )


if __name__ == "__main__":
    tag, repository = sys.argv[1:]
    here = Path(__file__).resolve().parents[1]
    if found := problems(here, tag):
        sys.exit("\n".join(found))
    prepare(here, tag, repository)
