"""From ``script.py`` or ``-m package.module`` to what runs as ``__main__``, as Python runs it."""

import builtins
import importlib.machinery
import importlib.util
import os
import sys
import types

from auditor.errors import TargetProblem
from auditor.runs.target import Address, guarded, no_module, with_dashes


def load(address: Address, args: tuple[str, ...]) -> tuple[types.ModuleType, types.CodeType]:
    """A fresh ``__main__`` for an unmodified program, and its compiled code; workers find the
    user's classes in it.

    A module's parent packages are imported, as by ``python -m``. Raises :class:`TargetProblem` when
    there is no such module, or the source does not compile.
    """
    return _main_of_module(address, args) if address.module else _main_of_file(address.path, args)


def _main_of_module(
    address: Address, args: tuple[str, ...]
) -> tuple[types.ModuleType, types.CodeType]:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    sys.argv = ["-m", *args]
    spec = _spec_of(address, address.module)
    if spec.submodule_search_locations is not None:
        spec = _spec_of(address, f"{address.module}.__main__")
    get_code = getattr(spec.loader, "get_code", None)
    try:
        code = get_code(spec.name) if get_code is not None else None
    except SyntaxError as error:
        raise TargetProblem(
            f"{spec.origin} is not valid Python: {error.args[0]} (line {error.lineno})"
        ) from None
    if code is None or spec.origin is None:
        raise TargetProblem(f"{spec.name} has no Python source that could be run")
    sys.argv[0] = spec.origin
    return _fresh_main(spec.origin, spec), code


def _spec_of(address: Address, name: str) -> importlib.machinery.ModuleSpec:
    """Where a module is. Importing its parents may raise whatever the user's package raises."""

    def find() -> importlib.machinery.ModuleSpec | None:
        try:
            return importlib.util.find_spec(name)
        except ModuleNotFoundError as error:
            if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
                raise no_module(error.name) from None
            raise

    spec: importlib.machinery.ModuleSpec | None = guarded(address, find)
    if spec is None:
        if name.endswith(".__main__"):
            raise TargetProblem(
                f"{address.module} is a package without __main__.py, so python -m cannot run it "
                "either",
                f"name the module that is the program: audit run -m {address.module}.train",
            )
        raise no_module(name)
    return spec


def _main_of_file(path: str, args: tuple[str, ...]) -> tuple[types.ModuleType, types.CodeType]:
    file = os.path.abspath(path)
    sys.path.insert(0, os.path.dirname(file))
    sys.argv = [path, *args]
    try:
        with open(file, "rb") as source:
            code = compile(source.read(), file, "exec")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise TargetProblem(
            f"{path} is not valid Python: {error.args[0]}" + (f" (line {line})" if line else "")
        ) from None
    return _fresh_main(file, None), code


def _fresh_main(file: str, spec: importlib.machinery.ModuleSpec | None) -> types.ModuleType:
    module = types.ModuleType("__main__")
    module.__file__ = file
    module.__builtins__ = builtins  # type: ignore[attr-defined]  # what exec would set
    module.__spec__ = spec
    if spec is not None:
        module.__package__, module.__loader__ = spec.parent, spec.loader
    sys.modules["__main__"] = module
    return module


def refused_arguments(address: Address, asked: str) -> TargetProblem:
    """What to say of a program that left before its first step."""
    name = f"python -m {address.module}" if address.module else address.path
    return TargetProblem(
        f"{name} refused its arguments: {asked}", f"they stand after --: {with_dashes(address)}"
    )
