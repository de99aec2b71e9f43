"""What a TARGET looks like, and what words that are none are likely to have been meant for."""

from __future__ import annotations

import os

from auditor.errors import TargetProblem


def is_dotted(name: str) -> bool:
    """Whether this is the name of a module: ``package.module``."""
    return bool(name) and all(part.isidentifier() for part in name.split("."))


FORMS = (
    "give package.module:callable, path/to/file.py:callable, path/to/script.py or -m package.module"
)


_WITHOUT = "leave out {}: audit run train.py -- its own arguments"

LAUNCHERS = {name: _WITHOUT.format(name) for name in ("python", "python3", "uv")}
"""Words before a program that people leave standing, and what to write instead."""


def not_a_target(text: str) -> TargetProblem:
    """Why words without a colon and without ``.py`` are no target, and what was likely meant."""
    if not text.strip():
        return TargetProblem(
            f"the target is empty: {FORMS}", "for example: audit run mytrainer:step"
        )
    if text in LAUNCHERS:
        return TargetProblem(f"{text!r} is not a target: {FORMS}", LAUNCHERS[text])
    if os.path.isdir(text):
        return TargetProblem(f"{text} is a folder, not a target: {FORMS}", _in_folder(text))
    if os.path.isfile(text):
        return TargetProblem(f"{text} is a file, but not Python source: {FORMS}", _for_file(text))
    if os.path.isfile(f"{text}.py"):
        return TargetProblem(
            f"{text!r} is not a target: {FORMS}", f"did you mean {text}.py, or {text}:step?"
        )
    module, _, last = text.rpartition(".")
    likely = f"{text}:step" if is_dotted(text) else "mytrainer:step"
    if module and is_dotted(text) and os.path.isfile(module.replace(".", os.sep) + ".py"):
        likely = f"{module}:{last}"
    return TargetProblem(f"{text!r} is not a target: {FORMS}", f"for example: audit run {likely}")


def _in_folder(folder: str) -> str:
    """What in a folder may have been meant."""
    if any(
        os.path.isfile(os.path.join(folder, *name))
        for name in (("recording", "manifest.json"), ("manifest.json",))
    ):
        return f"it holds a recording: audit analyze {folder} judges it again"
    names = set(os.listdir(folder))
    if "__init__.py" in names and is_dotted(folder):
        return (
            f"audit run -m {folder}"
            if "__main__.py" in names
            else f"it is a package: audit run {folder}.module:callable"
        )
    scripts = sorted(name for name in names if name.endswith(".py") and not name.startswith("__"))
    likely = next(
        iter([name for name in ("train.py", "main.py") if name in names] or scripts), None
    )
    return (
        f"for example: audit run {os.path.join(folder, likely)}"
        if likely
        else "name the program in it"
    )


def _for_file(file: str) -> str:
    """What to do about a file that does not end in .py."""
    name, kind = os.path.splitext(os.path.basename(file))
    if name == "report":
        return (
            f"audit view {os.path.dirname(file) or '.'} shows a report; audit fix and audit "
            "compare read report.json"
        )
    if kind in (".json", ".gz", ".pickle"):
        return f"audit analyze {file} judges a trace or a snapshot"
    if kind in (".sh", ".bash", ".slurm", ".yaml", ".yml", ".toml"):
        return "name the Python program that it is for"
    return "" if kind else f"if it is Python, a copy or link with the name {file}.py will do"
