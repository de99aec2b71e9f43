"""Which calls log, and where to: a screen, an experiment tracker, or a file that may be read later."""

import ast
from typing import Literal

from auditor.syntax.index import is_path, name_of

Kind = Literal["screen", "tracker", "file"]

SCREENS = frozenset({"sys.stdout", "sys.stderr", "stdout", "stderr"})

_BARS = frozenset({"set_postfix", "set_postfix_str", "set_description", "set_description_str"})
_SCALARS = frozenset({"add_scalar", "add_scalars", "add_histogram"})
_LEVELS = frozenset({"info", "debug"})
_TRACKERS = frozenset(
    {"wandb", "mlflow", "accelerator", "fabric", "experiment", "run", "swanlab", "trackio"}
)
_TRACKED = frozenset({"log", "log_metric", "log_metrics", "log_scalar"})
_PRINTERS = frozenset({"console", "rich", "accelerator", "fabric"})
_WRITES = frozenset({"write", "writelines", "writerow", "writerows"})


def log_kind(call: ast.Call) -> Kind | None:
    """Where the call logs to; None if unknown. It is called on a path like ``self.log``."""
    if isinstance(call.func, ast.Name):
        return _printed(call) if call.func.id == "print" else None
    if not isinstance(call.func, ast.Attribute) or not is_path(call.func.value):
        return None
    name, owner = call.func.attr, name_of(call.func.value)
    if (
        name in _BARS
        or (name == "print" and owner in _PRINTERS)
        or (name, owner) == ("echo", "click")
    ):
        return "screen"
    if name in _SCALARS or counts_its_calls(call):
        return "tracker"
    if "log" in owner.lower() and (
        name in _LEVELS or (name == "log" and len(call.args) > 1 and _is_level(call.args[0]))
    ):
        return "screen"
    if name in _WRITES:
        shown = owner == "tqdm" or "bar" in owner.lower() or ast.unparse(call.func.value) in SCREENS
        return "screen" if shown and name == "write" else "file"
    return None


def counts_its_calls(call: ast.Call) -> bool:
    """True for trackers, which number calls without ``step``: fewer would move the curve."""
    named = isinstance(call.func, ast.Attribute) and call.func.attr in _TRACKED
    return named and name_of(call.func.value) in _TRACKERS  # type: ignore[attr-defined]


def _printed(call: ast.Call) -> Kind:
    into = next((item.value for item in call.keywords if item.arg == "file"), None)
    return "screen" if into is None or ast.unparse(into) in SCREENS else "file"


def _is_level(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) is int and node.value <= 20
    return name_of(node) in ("INFO", "DEBUG")
