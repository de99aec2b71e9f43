"""Links that open a line in the user's editor."""

import re
from urllib.parse import quote

DEFAULT = "vscode://file/{path}:{line}"

SCHEMES = (
    "vscode", "vscode-insiders", "vscodium", "cursor", "windsurf", "zed", "idea", "pycharm", "jetbrains",
    "subl", "sublime", "txmt", "mvim", "emacs", "nvim", "editor",
)  # fmt: skip
"""Schemes that a link to an editor may have: none that a browser runs or fetches."""

_LINK = re.compile(rf"(?:{'|'.join(SCHEMES)})://[^\s<>\"']*")


def is_template(words: str) -> bool:
    """Whether ``words`` are an editor's address with ``{path}`` and nothing else in braces."""
    bare = words.replace("{path}", "").replace("{line}", "")
    return "{path}" in words and not set("{}") & set(bare) and is_link(bare)


def is_link(words: str) -> bool:
    """Whether it opens an editor, and can do nothing else."""
    return _LINK.fullmatch(words) is not None


def link(template: str, path: str, line: int) -> str:
    """The address of a line of an absolute path."""
    return template.replace("{path}", quote(path.lstrip("/"))).replace("{line}", str(line))
