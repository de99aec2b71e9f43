"""From the words after ``audit run`` to what takes one training step at a time. No torch."""

import difflib
import functools
import importlib
import importlib.util
import inspect
import itertools
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from auditor.errors import AuditProblem, TargetProblem, fault, traceback_of, words_of
from auditor.runs.left_without_cuda import ON_CPU, left_without_cuda

Kind = Literal["callable", "generator", "script"]

NAMED = 8
"""Names of a module's own that are offered where it has not the one asked for."""


@dataclass(frozen=True)
class Address:
    """A TARGET taken apart: ``module`` or ``path``, and the dotted ``attribute`` (or empty)."""

    text: str
    module: str = ""
    path: str = ""
    attribute: str = ""

    @property
    def kind(self) -> Literal["object", "script"]:
        """``script`` for ``path/to/script.py`` and ``-m package.module``, else ``object``."""
        return "object" if self.attribute else "script"

    @property
    def label(self) -> str:
        """Short name for the output folder: ``trainer-step``."""
        stem = os.path.splitext(os.path.basename(self.path))[0] if self.path else self.module
        return "-".join(part for part in (stem, self.attribute) if part).replace(".", "-")


def parse(text: str) -> Address:
    """Take a TARGET apart without importing anything.

    Raises :class:`TargetProblem` if it has an unknown form, or names a file that is missing.
    """
    if text.startswith(AS_MODULE):
        return _module(text)
    if text.startswith(("http://", "https://")):
        raise TargetProblem(
            f"{text} is an address on the web: {FORMS}", "fetch the program first (git clone)"
        )
    if "::" in text:
        right = text.replace("::", ":")
        raise TargetProblem(
            f"{text!r} is not a target: one colon stands before the callable", f"audit run {right}"
        )
    head, colon, attribute = text.rpartition(":")
    file = head if colon else text
    if file.endswith(".ipynb"):
        script = os.path.basename(file).removesuffix(".ipynb") + ".py"
        raise TargetProblem(
            f"{file} is a notebook, not Python source: jupyter nbconvert --to script {file} writes "
            "the program that audit can run",
            f"then: audit run {os.path.join(os.path.dirname(file), script)}",
        )
    if not colon:
        if not text.endswith(".py"):
            raise _not_a_target(text)
        _require_file(text)
        return Address(text, path=text)
    if not head or not attribute or not all(part.isidentifier() for part in attribute.split(".")):
        name = attribute.split("(")[0]
        call = (
            f"leave out the call: audit run {head}:{name}"
            if head and name != attribute and name.isidentifier()
            else ""
        )
        raise TargetProblem(
            f"{text!r} is not a target: the name of a callable must follow the colon",
            call or f"for example: audit run {head or 'mytrainer'}:step",
        )
    if head.endswith(".py") or os.sep in head:
        head = head if head.endswith(".py") or not os.path.isfile(head + ".py") else head + ".py"
        _require_file(head)
        return Address(text, path=head, attribute=attribute)
    if not is_dotted(head):
        raise TargetProblem(
            f"{text!r} is not a target: {head!r} is not the name of a module",
            "for example: mytrainer:step",
        )
    return Address(text, module=head, attribute=attribute)


FORMS = (
    "give package.module:callable, path/to/file.py:callable, path/to/script.py or -m package.module"
)

LAUNCHERS = ("python", "python3", "uv")
"""Words before a program that people leave standing."""


def is_dotted(name: str) -> bool:
    """Whether this is the name of a module: ``package.module``."""
    return bool(name) and all(part.isidentifier() for part in name.split("."))


def _not_a_target(text: str) -> TargetProblem:
    """Why words without a colon and without ``.py`` are no target, and what was likely meant."""
    what, (module, _, last) = "", text.rpartition(".")
    if text in LAUNCHERS:
        hint = f"leave out {text}: audit run train.py -- its own arguments"
    elif os.path.isdir(text):
        what = f"{text} is a folder, not a target"
        hint = f"name the program in it; audit run -m {text} runs a package, audit analyze {text} "
        hint += "judges a recording"
    elif os.path.isfile(text):
        what = f"{text} is a file, but not Python source"
        hint = "audit analyze judges a trace or a snapshot, audit view shows the folder of a report"
    elif os.path.isfile(f"{text}.py"):
        hint = f"did you mean {text}.py, or {text}:step?"
    else:
        likely = f"{module}:{last}" if module else f"{text}:step"
        hint = f"for example: audit run {likely if is_dotted(text) else 'mytrainer:step'}"
    return TargetProblem(f"{what or f'{text!r} is not a target'}: {FORMS}", hint)


AS_MODULE = "-m "
"""How a TARGET begins that runs as ``python -m`` runs a module."""


def _module(text: str) -> Address:
    name = text.removeprefix(AS_MODULE).strip()
    if is_dotted(name) and not name.endswith(".py"):
        return Address(text, module=name)
    module = os.path.normpath(name.removesuffix(".py")).replace(os.sep, ".")
    if ":" in name:
        hint = f"leave out -m: audit run {name}"
    else:
        hint = (
            f"did you mean audit run -m {module}?"
            if is_dotted(module)
            else "for example: audit run -m package.module"
        )
    raise TargetProblem(f"{name!r} is not the name of a module, which is what -m runs", hint)


def _require_file(path: str) -> None:
    if os.path.isfile(path):
        return
    if os.path.isdir(path):
        raise TargetProblem(
            f"{path} is a folder, not a file of Python source",
            f"name a file in it: {os.path.join(path, 'train.py')}",
        )
    folder = os.path.dirname(path) or "."
    here = (
        [os.path.join(folder, name) for name in os.listdir(folder)] if os.path.isdir(folder) else []
    )
    raise TargetProblem(
        f"{path} is not a file (in {os.getcwd()})",
        _suggest(os.path.join(folder, os.path.basename(path)), here),
    )


def _suggest(name: str, candidates: list[str]) -> str:
    close = difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)
    return f"did you mean {os.path.normpath(close[0])!r}?" if close else ""


def load(address: Address, args: tuple[str, ...]) -> tuple[Any, types.ModuleType]:
    """Import the module of an object target and return the object and its module.

    The current directory becomes importable, ``sys.argv`` is set to the file and ``args``. Raises
    :class:`TargetProblem`.
    """
    module = _import_path(address, args) if address.path else _import_module(address, args)
    return _attribute(module, address), module


def _import_module(address: Address, args: tuple[str, ...]) -> types.ModuleType:
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        spec = importlib.util.find_spec(address.module)
    except ModuleNotFoundError as error:
        raise no_module(error.name or address.module) from None
    except (ImportError, ValueError) as error:
        raise TargetProblem(
            f"{address.module} could not be imported: {words_of(error)}", "", traceback_of(error)
        ) from None
    if spec is None:
        raise no_module(address.module)
    sys.argv = [spec.origin or address.module, *args]
    module: types.ModuleType = guarded(address, lambda: importlib.import_module(address.module))
    return module


def no_module(name: str) -> TargetProblem:
    """That there is no such module, with a suggestion."""
    here = sorted(
        entry.removesuffix(".py")
        for entry in os.listdir()
        if entry.endswith(".py") or os.path.isdir(entry)
    )
    return TargetProblem(
        f"there is no module {name!r} to import from {os.getcwd()}",
        _suggest(name, here) or "change to the program's folder, or give path/to/file.py:callable",
    )


def _import_path(address: Address, args: tuple[str, ...]) -> types.ModuleType:
    path = os.path.abspath(address.path)
    name = os.path.splitext(os.path.basename(path))[0]
    if name in OURS:
        name = f"{name}_"
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
    guarded(address, lambda: loader.exec_module(module))
    return module


OURS = ("auditor", "isal", "msgspec", "psutil")
"""Packages that the recording process imports for itself. It does so before the program's folder is
importable: a module of the program with such a name is not what we get, nor what the program gets.
"""


def hidden(error: BaseException) -> TargetProblem | None:
    """What to say of an import that gave the program a package of ours in place of its own module
    of the same name, or us one of the program's; None for any other error.
    """
    if isinstance(error, ImportError):
        name = error.name or ""
    else:
        owner = error.obj if isinstance(error, AttributeError) else None
        name = owner.__name__ if isinstance(owner, types.ModuleType) else ""
    name = name.partition(".")[0]
    if name not in OURS:
        return None
    for folder in sys.path:
        for file in (f"{name}.py", os.path.join(name, "__init__.py")):
            theirs = os.path.abspath(os.path.join(folder, file))
            if os.path.isfile(theirs) and not _installed(theirs):
                return TargetProblem(
                    f"{theirs} has the name of a package that audit imports, too, and one process "
                    "holds only one of them",
                    "rename it to audit this program",
                )
    return None


def _installed(file: str) -> bool:
    return file.startswith(_OURS) or bool(
        {"site-packages", "dist-packages"} & {*file.split(os.sep)}
    )


def guarded(address: Address, do: Callable[[], Any]) -> Any:
    """Import something of the user's. Raises :class:`TargetProblem` for whatever that raises."""
    try:
        return do()
    except TargetProblem:
        raise
    except (Exception, SystemExit) as error:
        if (problem := hidden(error)) is not None:
            raise problem from None
        where = _last_frame(error)
        # ours, raised below their line: nothing is wrong with the import
        if isinstance(error, AuditProblem):
            raise TargetProblem(
                f"{words_of(error)}{where}", error.hint, traceback_of(error)
            ) from None
        if (said := left_without_cuda(error)) is not None:
            raise TargetProblem(said, ON_CPU) from None
        name = address.path or address.module
        if (asked := wrong_arguments(error)) is not None:
            raise TargetProblem(
                f"{name} refused its arguments when it was imported: {asked}",
                f"its own arguments stand after --: {with_dashes(address)}",
            ) from None
        said = fault(error).strip().rstrip(":")
        problem = TargetProblem(
            f"{name} could not be imported: {said}{where}",
            "run it with python to see it fail alone",
            traceback_of(error),
        )
        problem.raised = not isinstance(error, ImportError | SyntaxError)
        raise problem from None


_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def _last_frame(error: BaseException) -> str:
    if isinstance(error, SyntaxError):  # its own words say where
        return ""
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not f.filename.startswith(("<", _OURS))
    ]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _attribute(module: types.ModuleType, address: Address) -> Any:
    found: Any = module
    for part in address.attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            if (problem := hidden(error)) is not None:
                raise problem from None
            public = [name for name in dir(found) if not name.startswith("_")]
            owner = module.__name__ if found is module else type(found).__name__
            hint = _suggest(part, public) or (_defined(module) if found is module else "")
            raise TargetProblem(f"{owner} has no {part!r}", hint) from None
    return found


def _defined(module: types.ModuleType) -> str:
    """What of a module's own could be the step."""
    own = [
        name
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
    ]
    more = ", ..." if len(own) > NAMED else ""
    return f"it defines {', '.join(own[:NAMED])}{more}" if own else "it defines no function"


def stepper(found: Any, text: str) -> tuple[Kind, Callable[[], Any]]:
    """What takes one step when called: the callable itself, or ``next`` on the generator or
    iterator. A function whose one argument counts steps is given their numbers, from 0.

    Raises :class:`TargetProblem` for a class, a coroutine, something that wants arguments, or no
    callable at all.
    """
    if inspect.isclass(found):
        raise TargetProblem(
            f"{text} is a class; the target must take one step when called",
            f"make one and name its method: trainer = {found.__name__}(...); step = trainer.step",
        )
    if inspect.iscoroutinefunction(found):
        raise TargetProblem(
            f"{text} is a coroutine function; the target must be called without await"
        )
    if isinstance(found, Iterator):
        return "generator", functools.partial(next, found)
    if not callable(found):
        raise TargetProblem(
            f"{text} is {_article(type(found).__name__)}, not something that can be called"
        )
    if _counts_steps(found):
        numbers = itertools.count()
        return "callable", functools.wraps(found)(lambda: found(next(numbers)))
    _require_no_arguments(found, text)
    if _makes_a_generator(found):
        return "generator", functools.partial(next, found())
    return "callable", found


def _article(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"


COUNTERS = frozenset(
    {"i", "it", "idx", "index", "step", "iter", "iteration", "batch_idx", "global_step", "step_idx"}
)
"""Names of an argument that is the number of the step."""


def _counts_steps(found: Callable[..., Any]) -> bool:
    """A function whose one required argument has such a name, and may be an ``int``."""
    wanted = _wanted(found)
    if len(wanted) != 1 or wanted[0].kind is inspect.Parameter.KEYWORD_ONLY:
        return False
    told = wanted[0].annotation
    if _makes_a_generator(found):
        return False
    return wanted[0].name in COUNTERS and told in (inspect.Parameter.empty, int, "int")


def _makes_a_generator(found: Any) -> bool:
    return inspect.isgeneratorfunction(inspect.unwrap(getattr(found, "func", found)))


def _wanted(found: Callable[..., Any]) -> list[inspect.Parameter]:
    """Arguments without a default; empty for a builtin without a signature."""
    try:
        signature = inspect.signature(found)
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        p for p in signature.parameters.values() if p.default is p.empty and p.kind not in kinds
    ]


def _require_no_arguments(found: Callable[..., Any], text: str) -> None:
    wanted = [p.name for p in _wanted(found)]
    if wanted:
        name = text.rpartition(":")[2].rpartition(".")[2]
        raise TargetProblem(
            f"{text} wants arguments ({', '.join(wanted)}); the target is called without any",
            f"wrap it: def audited_step(): return {name}({', '.join(wanted)})",
        )


# -- a program that refuses its arguments ----------------------------------------------------------


def wrong_arguments(error: BaseException) -> str | None:
    """What argparse, click and their like said before they left with exit code 2; None if it was
    something else.

    argparse hands its sentence to ``ArgumentParser.error``; older versions of click leave while
    they handle the exception that holds it. Of others only what they printed is known.
    """
    if not isinstance(error, SystemExit) or error.code != 2:
        return None
    format_message = getattr(error.__context__, "format_message", None)
    if format_message is not None:
        return str(format_message())
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if (
            frame.f_code.co_name == "error"
            and os.path.basename(frame.f_code.co_filename) == "argparse.py"
        ):
            return str(frame.f_locals.get("message", ""))
    return "it left with exit code 2 before its first step, and what it printed says why"


def with_dashes(address: Address) -> str:
    """The command line with the program's own arguments where they belong."""
    return f"audit run {address.text} -- {' '.join((*sys.argv[1:], '...'))}"
