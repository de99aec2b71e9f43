"""Where in the user's source are we? Finds the innermost user frame of the current stack."""

from __future__ import annotations

import dis
import linecache
import os
import site as site_module
import sys
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from types import CodeType, FrameType, ModuleType
from typing import Any

import auditor
from auditor.recordings.folder import RecordingWriter

Path = tuple[int, ...]
"""Numbers of the user's lines around a call, the outermost first."""


def path_of(frames: Frames) -> Path:
    """The lines around the caller."""
    found = frames.user_frames(sys._getframe(1))
    return tuple([frames.number(each) for each in reversed(found)])


def needless(
    paths: Sequence[Path], wanted: Sequence[Path]
) -> Iterator[tuple[int, int, list[Path]]]:
    """The line that stands for each group of ``paths``, the outermost one that could, and the group.

    A group is what has in common the first line from which on no path is a ``wanted`` one. Of the
    lines that all of a group run through, the innermost one stands for it that is on no wanted
    path: a change there changes no other call.
    """
    used = {line for path in wanted for line in path}
    groups: dict[Path, list[Path]] = {}
    for path in paths:
        groups.setdefault(_apart(path, wanted), []).append(path)
    for prefix, together in groups.items():
        shared = _shared(together)
        own = [line for line in shared[len(prefix) - 1 :] if line not in used]
        own = own or [prefix[-1]]
        yield own[-1], own[0], together


def _apart(path: Path, wanted: Sequence[Path]) -> Path:
    """Its shortest beginning that no wanted path has."""
    for length in range(1, len(path)):
        if not any(other[:length] == path[:length] for other in wanted):
            return path[:length]
    return path


def _shared(paths: Sequence[Path]) -> Path:
    """The beginning that all have."""
    length = 0
    for lines in zip(*paths, strict=False):
        if len(set(lines)) > 1:
            break
        length += 1
    return paths[0][:length]


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


_PACKAGE, *_CHECKOUT = map(os.path.abspath, auditor.__path__)

OWN = (
    _PACKAGE + os.sep,
    *(os.path.join(root, room) + os.sep for root in _CHECKOUT for room in ("rules", "reports")),
)
"""How the paths of the auditor's own files begin."""

LOADER = os.path.join("torch", "utils", "data") + os.sep
"""In the path of every file of torch's loader."""

INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


def _library_roots() -> tuple[str, ...]:
    """Folders without user code: the standard library and installed packages."""
    roots = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots.update(site_module.getsitepackages())
    roots.add(site_module.getusersitepackages())
    return tuple(
        sorted(
            {os.path.realpath(root) + os.sep for root in roots if root}
            | {root + os.sep for root in roots if root}
        )
    )


GENERATED = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
"""Variables that name folders of what ``torch.compile`` writes; the program may set them itself."""


def _is_generated(file: str) -> bool:
    """True of the code that ``torch.compile`` and Triton wrote."""
    if "torchinductor_" in file:
        return True
    triton = os.path.join(os.environ.get("TRITON_HOME") or os.path.expanduser("~"), ".triton")
    roots = [os.environ.get(name) for name in GENERATED] + [triton]
    return any(
        file.startswith(resolve(root).rstrip(os.sep) + os.sep)
        for root in roots
        if root
        for resolve in (os.path.abspath, os.path.realpath)
    )


PASSED_ON = tuple(
    "POP_JUMP_ JUMP_IF_ TO_BOOL UNARY_NOT COPY CACHE NOP EXTENDED_ARG NOT_TAKEN".split()
)
"""Instructions that test the value on top of the stack, or leave it there."""


def _opnames(code: CodeType) -> dict[int, str]:
    """Instruction names by every offset that lies in them: a frame may stand in an instruction's
    inline cache (3.11+). A call of 3.11 is two instructions; which of them a frame stands in
    changes as the interpreter specializes it.
    """
    instructions = list(dis.get_instructions(code))
    ends = [instruction.offset for instruction in instructions[1:]] + [len(code.co_code)]
    return {
        at: "CALL" if i.opname == "PRECALL" else i.opname
        for i, end in zip(instructions, ends, strict=True)
        for at in range(i.offset, end, 2)
    }


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """The frame and those that called it, innermost first."""
    while frame is not None:
        yield frame
        frame = frame.f_back


class Frames:
    """Tells user frames from library frames and turns them into site numbers of a recording.

    A file is the user's when it is outside the standard library, installed packages and this
    package. Below ``own_roots`` (the script's folder, or the target's own package, installed or
    not) it is the user's too, unless a library's folder lies between: an environment in the
    project, as ``.venv``, is no part of the program.
    """

    def __init__(self, writer: RecordingWriter, own_roots: tuple[str, ...] = ()) -> None:
        self._writer = writer
        real = {
            resolve(root).rstrip(os.sep) + os.sep
            for root in own_roots
            for resolve in (os.path.abspath, os.path.realpath)
        }
        self._own_roots = tuple(sorted(real))
        self._libraries = _library_roots()
        self._is_user: dict[str, bool] = {}
        self._strangers: dict[int, tuple[dict[str, Any], bool]] = {}
        self._spans: dict[CodeType, list[tuple[Any, ...]]] = {}
        self._opnames: dict[CodeType, dict[int, str]] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}
        self.met = Counter[int]()
        """How often each was met since this was cleared."""

    def spelled(self, file: str) -> str:
        """An absolute path as the recording writes it: the original's of a copy."""
        path = source_path(file)
        return path if self._writer.spelled is None else self._writer.spelled(path)

    def is_user(self, file: str) -> bool:
        """True if ``file`` (a code object's file name) is source that the user would edit."""
        known = self._is_user.get(file)
        if known is None:
            known = self._is_user[file] = self._judge(file)
        return known

    def _judge(self, file: str) -> bool:
        if cell_of(file) is not None:
            return True
        if file.startswith(("<", *OWN)):
            return False
        path = os.path.abspath(file)
        if not self._innermost_is_own(path) or _is_generated(file):
            return False
        real = os.path.realpath(file)
        return real == path or self._innermost_is_own(real)

    def _innermost_is_own(self, path: str) -> bool:
        """True if the innermost known folder around the file is the user's, or none is known."""
        library = max((len(root) for root in self._libraries if path.startswith(root)), default=0)
        for mark in INSTALLED:  # also of another environment that this one looks into
            library = max(library, path.rfind(mark) + len(mark) if mark in path else 0)
        own = max(
            (len(root) for root in self._own_roots if (path + os.sep).startswith(root)), default=0
        )
        return own > library or not library

    def user_modules(self) -> Iterator[ModuleType]:
        """The user's modules that are imported."""
        for module in list(sys.modules.values()):
            if isinstance(module, ModuleType) and self.user_file(module) is not None:
                yield module

    def user_file(self, module: ModuleType) -> str | None:
        """The file of an imported module if it is the user's source, else None.

        Import gives absolute paths; torch itself has modules that give themselves another
        (``_ops.py``).
        """
        file = vars(module).get("__file__")
        return (
            file if isinstance(file, str) and os.path.isabs(file) and self.is_user(file) else None
        )

    @staticmethod
    def is_own(file: str) -> bool:
        """True of the recorder's own files."""
        return file.startswith(OWN)

    def user_frame(self, depth: int = 1) -> tuple[FrameType | None, FrameType | None]:
        """Innermost user frame of the caller, and the innermost library frame below it."""
        frame: FrameType | None = sys._getframe(depth + 1)
        via: FrameType | None = None
        strangers = self._strangers  # hot: asked for each operator
        while frame is not None:
            known = strangers.get(id(frame.f_globals))
            if known is None and self.is_user_frame(frame):
                return frame, via
            if via is None and not (known is not None and known[1]):
                file = frame.f_code.co_filename
                if not self.is_own(file) and not file.startswith("<"):
                    via = frame
            frame = frame.f_back
        return None, via

    def is_user_frame(self, frame: FrameType) -> bool:
        """True if the code that runs in it is the user's.

        A module's globals answer for all code that runs with those of a library: reading a frame's
        code is an audit event, and there are twenty frames of libraries around an operator.
        """
        if id(frame.f_globals) in self._strangers:
            return False
        if self.is_user(frame.f_code.co_filename):
            return True
        self.is_library_frame(frame)  # known from now on
        return False

    def is_library_frame(self, frame: FrameType) -> bool:
        """True if its globals are those of a module that is not the user's."""
        return self.is_of_library(frame.f_globals)

    def is_of_library(self, names: dict[str, Any]) -> bool:
        """True of the globals of a module that is not the user's; they are remembered."""
        if id(names) in self._strangers:
            return True
        file = dict.get(names, "__file__")
        if not (isinstance(file, str) and os.path.isabs(file)) or self.is_user(file):
            return False
        # Held, so that the number is one's; a library's names stay as long as the process.
        self._strangers[id(names)] = names, self.is_own(file)
        return True

    def user_frames(self, frame: FrameType | None, most: int | None = None) -> list[FrameType]:
        """The user's frames from ``frame`` outwards, ``most`` of them."""
        found: list[FrameType] = []
        strangers = self._strangers
        while frame is not None and len(found) != most:
            if id(frame.f_globals) not in strangers and self.is_user_frame(frame):
                found.append(frame)
            frame = frame.f_back
        return found

    def here(self, depth: int = 1) -> int | None:
        """Site number of the stack's innermost user frame; None if there is none."""
        frame, via = self.user_frame(depth + 1)
        return None if frame is None else self.number(frame, via)

    def number(self, frame: FrameType, via: FrameType | None = None) -> int:
        """Site number of a frame at its current instruction."""
        code = frame.f_code
        key = (code, frame.f_lasti, None if via is None else via.f_code)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._register(frame, via)
        self.met[number] += 1
        return number

    def site(self, file: str, line: int, function: str) -> int:
        """Site number of a line that is known by name only, as one of another process is."""
        return self._writer.site(source_path(file), line, function.replace("<locals>.", ""))

    def _register(self, frame: FrameType, via: FrameType | None) -> int:
        code = frame.f_code
        more: dict[str, Any] = {"opcode": self._opcode(code, frame.f_lasti)}
        line = frame.f_lineno or code.co_firstlineno
        span = self._span(code, frame.f_lasti)
        if span is not None:
            more.update(span)
        if via is not None:
            more["via"] = self.library_name(via)
        name = code.co_qualname.replace("<locals>.", "")
        return self._writer.site(source_path(code.co_filename), line, name, **more)

    def _opcode(self, code: CodeType, lasti: int) -> str:
        names = self._opnames.get(code)
        if names is None:
            names = self._opnames[code] = _opnames(code)
        return names.get(lasti, "")

    def _span(self, code: CodeType, lasti: int) -> dict[str, int] | None:
        spans = self._spans.get(code)
        if spans is None:
            spans = self._spans[code] = list(code.co_positions())
        index = self._tested(code, lasti) // 2
        if not 0 <= index < len(spans) or None in spans[index]:
            return None
        line, end_line, col, end_col = spans[index]
        return {"first_line": line, "end_line": end_line, "col": col, "end_col": end_col}

    def _tested(self, code: CodeType, lasti: int) -> int:
        """The instruction that made what the one at ``lasti`` tests for truth, itself for any other:
        a jump stands where the whole condition or its first operand stands
        (``p is not None and ok.all()``), not where the tensor does.
        """
        at = lasti
        while at > 0 and self._opcode(code, at).startswith(PASSED_ON):
            at -= 2
        return at

    @staticmethod
    def library_name(frame: FrameType) -> str:
        """``torch/nn/utils/clip_grad.py:clip_grad_norm_``: path below its root, function."""
        file = frame.f_code.co_filename.replace(os.sep, "/")
        for mark in ("/site-packages/", "/dist-packages/"):
            if mark in file:
                file = file.split(mark, 1)[1]
                break
        else:
            file = "/".join(file.split("/")[-2:])
        return f"{file}:{frame.f_code.co_name}"
