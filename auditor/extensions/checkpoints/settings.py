"""What the user configured, in YAML, TOML, JSON or Python. Python is read, never run."""

import ast
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from auditor.errors import AuditProblem
from auditor.evidence.scans import Setting

SIZE_LIMIT = 2**20
"""Bytes of a configuration at most: PyYAML takes ten seconds for as many."""
VALUES = 100_000
"""Values that are read at most: ten lines of YAML aliases stand for a billion."""


def read(path: Path) -> tuple[Setting, ...]:
    """All settings of a file. Raises :class:`AuditProblem` when it cannot be read."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise AuditProblem(f"--config {path} cannot be read: {error.strerror}") from None
    if len(raw) > SIZE_LIMIT:
        raise AuditProblem(
            f"--config {path} is larger than {SIZE_LIMIT} bytes: it is no configuration"
        )
    try:
        text = raw.decode("utf-8")
        found = (
            _of_python(ast.parse(text))
            if path.suffix == ".py"
            else _of_tree(_parsed(path, text), (), itertools.count())
        )
        return tuple(found)
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise AuditProblem(
            f"--config {path} cannot be read: {' '.join(str(error).split())[:200]}"
        ) from None


def _parsed(path: Path, text: str) -> Any:
    if path.suffix == ".json":
        return json.loads(text)
    if path.suffix == ".toml":
        import tomllib

        return tomllib.loads(text)
    if path.suffix in (".yaml", ".yml"):
        return _yaml(path, text)
    raise AuditProblem(f"--config {path}: only .yaml, .yml, .toml, .json and .py files are read")


def _yaml(path: Path, text: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise AuditProblem(
            f"--config {path}: reading YAML needs PyYAML",
            "pip install pyyaml, or give it as JSON or TOML",
        ) from None
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from None


def _of_tree(value: Any, path: tuple[str, ...], seen: Iterator[int]) -> Iterator[Setting]:
    if next(seen) > VALUES:
        raise ValueError(f"it has more than {VALUES:,} values")
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _of_tree(each, (*path, str(key)), seen)
    elif isinstance(value, list):
        for each in value:
            yield from _of_tree(each, path, seen)
    elif path:
        yield from _setting(path, value)


def _setting(path: tuple[str, ...], value: Any) -> Iterator[Setting]:
    if isinstance(value, str):
        try:
            value = float(value)  # YAML reads 1e-4 as a word
        except ValueError:
            yield Setting(".".join(path), value)
            return
    if isinstance(value, bool):
        yield Setting(".".join(path), value)
    elif isinstance(value, (int, float)) and abs(value) < 1e300:
        yield Setting(".".join(path), float(value))


def _of_python(tree: ast.Module) -> Iterator[Setting]:
    """Constants: assigned, in keywords, in dicts, or as defaults of command-line options."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _constant((_name(target),), node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _constant((_name(node.target),), node.value)
        elif isinstance(node, ast.Dict):
            for key, each in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield from _constant((key.value,), each)
        elif isinstance(node, ast.Call):
            yield from _of_call(node)


def _of_call(call: ast.Call) -> Iterator[Setting]:
    function = _name(call.func)
    option = call.args[0] if call.args else None
    for given in call.keywords:
        if (
            given.arg == "default"
            and isinstance(option, ast.Constant)
            and isinstance(option.value, str)
        ):
            yield from _constant((option.value.lstrip("-"),), given.value)
        elif given.arg not in (None, "default"):
            yield from _constant((function, str(given.arg)), given.value)


def _constant(path: tuple[str, ...], node: ast.expr) -> Iterator[Setting]:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, MemoryError):
        return
    if isinstance(value, (int, float, str)):
        yield from _setting(path, value)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else "?"
