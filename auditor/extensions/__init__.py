"""What is built on an audit and is no part of it: each extension is a folder here, found by its
name. The core (all else in auditor, rules and reports) imports none of them
(tests/test_architecture.py); where it has a place for one, it asks for it by name.
"""

from __future__ import annotations

import importlib
from typing import Any


def extension(name: str) -> Any:
    """The module of an extension, as ``nulldevice`` or ``plan.command``."""
    return importlib.import_module(f"{__name__}.{name}")
