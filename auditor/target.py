"""From the words after ``audit run`` to something that takes one training step at a time. No torch here."""

from __future__ import annotations

import builtins
import difflib
import functools
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from auditor.errors import AuditProblem, TargetProblem

Kind = Literal["callable", "generator", "script"]


@dataclass(frozen=True)
class Address:
    """A TARGET taken apart: ``module`` or ``path`` (one of them is empty), and the dotted ``attribute`` (empty for scripts)."""

    text: str
    module: str = ""
    path: str = ""
    attribute: str = ""

    @property
    def kind(self) -> Literal["object", "script"]:
        """``script`` for ``path/to/script.py``, else ``object``."""
        return "object" if self.attribute else "script"

    @property
    def label(self) -> str:
        """Short name for the output folder: ``trainer-step``."""
        stem = os.path.splitext(os.path.basename(self.path))[0] if self.path else self.module
        return "-".join(part for part in (stem, self.attribute) if part).replace(".", "-")


def parse(text: str) -> Address:
    """Take a TARGET apart without importing anything.

    Raises :class:`TargetProblem` when it is of none of the three forms, or names a file that is not there.
    """
    head, colon, attribute = text.rpartition(":")
    if not colon:
        if not text.endswith(".py"):
            hint = f"{text}:step" if text.isidentifier() or "." in text else "mytrainer:step"
            raise TargetProblem(
                f"{text!r} is not a target: give package.module:callable, path/to/file.py:callable or path/to/script.py",
                f"for example: audit run {hint}",
            )
        _require_file(text)
        return Address(text, path=text)
    if not head or not attribute or not all(part.isidentifier() for part in attribute.split(".")):
        raise TargetProblem(
            f"{text!r} is not a target: after the colon must stand the name of a callable", "for example: mytrainer:step"
        )
    if head.endswith(".py") or os.sep in head:
        head = head if head.endswith(".py") or not os.path.isfile(head + ".py") else head + ".py"
        _require_file(head)
        return Address(text, path=head, attribute=attribute)
    return Address(text, module=head, attribute=attribute)


def _require_file(path: str) -> None:
    if os.path.isfile(path):
        return
    folder = os.path.dirname(path) or "."
    here = [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []
    raise TargetProblem(
        f"{path} is not a file (looked from {os.getcwd()})", _suggest(os.path.join(folder, os.path.basename(path)), here)
    )


def _suggest(name: str, candidates: list[str]) -> str:
    close = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    return f"did you mean {os.path.normpath(close[0])!r}?" if close else ""


def load(address: Address, args: tuple[str, ...]) -> tuple[Any, types.ModuleType]:
    """Import the module of an object target and return the object and its module.

    The current directory becomes importable, ``sys.argv`` is set to the file and ``args``. Raises :class:`TargetProblem`.
    """
    module = _import_path(address, args) if address.path else _import_module(address, args)
    return _attribute(module, address), module


def _import_module(address: Address, args: tuple[str, ...]) -> types.ModuleType:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(address.module)
    except ModuleNotFoundError as error:
        raise _no_module(error.name or address.module) from None
    except (ImportError, ValueError) as error:
        raise TargetProblem(f"{address.module} could not be imported: {error}", "", traceback.format_exc()) from None
    if spec is None:
        raise _no_module(address.module)
    sys.argv = [spec.origin or address.module, *args]
    module: types.ModuleType = _guarded(address, lambda: importlib.import_module(address.module))
    return module


def _no_module(name: str) -> TargetProblem:
    here = sorted(entry.removesuffix(".py") for entry in os.listdir() if entry.endswith(".py") or os.path.isdir(entry))
    return TargetProblem(f"there is no module {name!r} to import from {os.getcwd()}", _suggest(name, here))


def _import_path(address: Address, args: tuple[str, ...]) -> types.ModuleType:
    path = os.path.abspath(address.path)
    name = os.path.splitext(os.path.basename(path))[0]
    sys.path.insert(0, os.path.dirname(path))
    if os.getcwd() not in sys.path:
        sys.path.insert(1, os.getcwd())
    sys.argv = [address.path, *args]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetProblem(f"{address.path} is not Python source")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader = spec.loader
    _guarded(address, lambda: loader.exec_module(module))
    return module


def _guarded(address: Address, do: Callable[[], Any]) -> Any:
    try:
        return do()
    except TargetProblem:
        raise
    except (Exception, SystemExit) as error:
        where = _last_frame(error)
        if isinstance(error, AuditProblem):  # ours, raised below their line: nothing is wrong with the import
            raise TargetProblem(f"{error}{where}", error.hint, traceback.format_exc()) from None
        name = address.path or address.module
        said = f"{type(error).__name__}: {error}".strip().rstrip(":")
        raise TargetProblem(
            f"{name} could not be imported: {said}{where}", "run it with python to see it fail alone", traceback.format_exc()
        ) from None


_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _last_frame(error: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(("<", _OURS))]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _attribute(module: types.ModuleType, address: Address) -> Any:
    found: Any = module
    for part in address.attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            public = [name for name in dir(found) if not name.startswith("_")]
            owner = module.__name__ if found is module else type(found).__name__
            raise TargetProblem(f"{owner} has no {part!r}", _suggest(part, public)) from None
    return found


def stepper(found: Any, text: str) -> tuple[Kind, Callable[[], Any]]:
    """What takes one step when called: the callable itself, or ``next`` on the generator or iterator.

    Raises :class:`TargetProblem` for a class, a coroutine, something that wants arguments, or no callable at all.
    """
    if inspect.isclass(found):
        raise TargetProblem(
            f"{text} is a class; the target must take one step when called",
            f"make one and name its method: trainer = {found.__name__}(...); step = trainer.step",
        )
    if inspect.iscoroutinefunction(found):
        raise TargetProblem(f"{text} is a coroutine function; the target must be called without await")
    if isinstance(found, Iterator):
        return "generator", functools.partial(next, found)
    if not callable(found):
        raise TargetProblem(f"{text} is {_article(type(found).__name__)}, not something that can be called")
    _require_no_arguments(found, text)
    if inspect.isgeneratorfunction(inspect.unwrap(getattr(found, "func", found))):
        return "generator", functools.partial(next, found())
    return "callable", found


def _article(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


def _require_no_arguments(found: Callable[..., Any], text: str) -> None:
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return  # builtins without a signature: calling them will tell
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    wanted = [p.name for p in signature.parameters.values() if p.default is p.empty and p.kind not in kinds]
    if wanted:
        name = text.rpartition(":")[2].rpartition(".")[2]
        raise TargetProblem(
            f"{text} wants arguments ({', '.join(wanted)}); the target is called without any",
            f"wrap it: def audited_step(): return {name}({', '.join(wanted)})",
        )


def main_module(path: str, args: tuple[str, ...]) -> tuple[types.ModuleType, types.CodeType]:
    """A fresh ``__main__`` for an unmodified script, and its compiled code; workers find the user's classes in it.

    Raises :class:`TargetProblem` when the file does not compile.
    """
    file = os.path.abspath(path)
    sys.path.insert(0, os.path.dirname(file))
    sys.argv = [path, *args]
    try:
        with open(file, "rb") as source:
            code = compile(source.read(), file, "exec")
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise TargetProblem(f"{path} is not valid Python: {error.args[0]}" + (f" (line {line})" if line else "")) from None
    module = types.ModuleType("__main__")
    module.__file__ = file
    module.__builtins__ = builtins  # type: ignore[attr-defined]  # what exec would set
    module.__spec__ = None
    sys.modules["__main__"] = module
    return module, code
