"""Cells of a notebook or of IPython as files of a recording: ``In[2]``, with the source that IPython
keeps in ``linecache``.
"""

from __future__ import annotations

import linecache
import os
import sys
from typing import Any


def cell_of(file: str) -> str | None:
    """``In[2]``, as the notebook shows it, for the file name of a cell's code; None for any other."""
    interactive: Any = sys.modules.get("IPython")
    shell = None if interactive is None else getattr(interactive, "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda file: None)(file)
    return None if named is None or file not in linecache.cache else str(named[1])


def cells() -> list[str]:
    """The paths of all cells that ran, by :func:`source_path`, the latest first."""
    return [source_path(file) for file in reversed(list(linecache.cache)) if cell_of(file)]


def source_path(file: str) -> str:
    """The absolute path of a code object's file. A cell lies in the working directory under its
    name; ``linecache`` has its source there too, for whoever keeps the sources. The first of a name
    stays: the code around a cell with a magic has its number too.
    """
    cell = cell_of(file)
    if cell is None:
        return os.path.abspath(file)
    path = os.path.abspath(cell)
    kept = linecache.cache.get(path)
    if kept is None or cell_of(str(kept[-1])) is None:
        linecache.cache[path] = linecache.cache[file]
    return path
