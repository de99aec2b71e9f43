"""Builds the null device for the installed torch, once, and keeps it in the user's cache
directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from torch_null_device import answers, callbacks
from torch_null_device.errors import NullDeviceProblem
from torch_null_device.found import CudaBuild, driver_functions, needed, symbols, tool
from torch_null_device.variables import LIBRARY

SOURCES = Path(__file__).with_name("csrc")
WRITERS = ("answers.py", "callbacks.py", "found.py")
"""Modules that write C, or say what it is written from."""
SKIPPED = tuple(f"-D__CUDA_{kind}_H__" for kind in ("FP16", "BF16", "FP8", "FP6", "FP4"))
"""Headers of small floating-point types, as if they had been included: in C no function needs them,
and they want CCCL's.
"""
CACHE = "TORCH_NULL_DEVICE_CACHE"
"""Environment variable that names the folder in which null devices are kept."""

FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread", "-w")


@dataclass(frozen=True)
class NullDevice:
    """A built null device: the folder that has the libraries, and how its functions are
    answered.
    """

    folder: Path
    written: int
    """Functions written out in C."""
    generated: int
    """Functions answered by their prototypes."""
    stubs: int
    """Functions that say that they are not answered."""

    @property
    def library(self) -> Path:
        """What goes into ``LD_PRELOAD``."""
        return self.folder / LIBRARY


def cache_folder() -> Path:
    """Where null devices are kept: ``$TORCH_NULL_DEVICE_CACHE``, else ``torch-null-device`` in the
    user's cache. NullDeviceProblem where there is none, and where others could write.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = Path(os.environ.get(CACHE) or os.path.join(base, "torch-null-device"))
    if not folder.is_absolute():
        raise NullDeviceProblem(
            "the null device is kept in the user's cache directory, and there is none",
            f"set {CACHE} to the path of a folder",
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as problem:
        raise NullDeviceProblem(
            f"the null device cannot be kept in {folder}: {problem.strerror}", f"set {CACHE}"
        ) from problem
    if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise NullDeviceProblem(
            f"others may write to {folder}, so that no code is loaded from it",
            f"set {CACHE} to a folder of your own",
        )
    return folder


def null_device(build: CudaBuild) -> NullDevice:
    """The null device for that torch, built first where it is not kept yet; NullDeviceProblem where it
    cannot be built.
    """
    kept = cache_folder() / _key(build)
    found = _checked(kept)
    if found is not None:
        return found
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="building-") as scratch:
        made = Path(scratch) / "made"
        made.mkdir()
        _build(build, made, Path(scratch))
        if kept.exists():  # spoiled, or finished by another process meanwhile
            found = _checked(kept)
            if found is not None:
                return found
            shutil.rmtree(kept)
        with contextlib.suppress(OSError):  # another process was first: what it built is the same
            made.rename(kept)
    found = _checked(kept)
    if found is None:
        raise NullDeviceProblem(
            f"the null device in {kept} is not what was built", f"remove {kept}"
        )
    return found


def _key(build: CudaBuild) -> str:
    """A hash of everything that the result depends on."""
    digest = hashlib.sha256()
    for source in sorted(
        [*SOURCES.iterdir(), Path(__file__), *map(Path(__file__).with_name, WRITERS)]
    ):
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    compiler = tool("cc", "gcc", "clang")
    told = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, check=False
    ).stdout
    digest.update(
        json.dumps(
            [build.version, build.cuda, build.inputs(), compiler, told, FLAGS, SKIPPED]
        ).encode()
    )
    return digest.hexdigest()[:32]


def _checked(folder: Path) -> NullDevice | None:
    """What is kept there, if each of its files is still what was built."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        files = manifest["files"]
        for name, digest in files.items():
            if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
                return None
        return NullDevice(folder, manifest["written"], manifest["generated"], manifest["stubs"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


class _Compiler:
    """The system's C compiler, for one build."""

    def __init__(self, build: CudaBuild, scratch: Path) -> None:
        self.program = tool("cc", "gcc", "clang")
        self.scratch = scratch
        (scratch / "callbacks.h").write_text(callbacks.tables(build.headers))
        self.includes = [f"-I{folder}" for folder in (SOURCES, scratch, *build.headers)]
        self.defines = [
            f"-DNULL_CUDA_MAJOR={build.cuda[0]}",
            f"-DNULL_CUDA_VERSION={build.cuda_number}",
            "-DCUBLASAPI=",
            *SKIPPED,
        ]

    def preprocessed(self, source: str) -> str:
        """A C text after the preprocessor."""
        return self.run("-E", "-P", *self.defines, *self.includes, "-x", "c", "-", given=source)

    def run(self, *arguments: str, given: str = "") -> str:
        """What the compiler prints; NullDeviceProblem with its first error."""
        done = subprocess.run(
            [self.program, *arguments], input=given, capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = next(
                (line for line in done.stderr.splitlines() if "error" in line),
                done.stderr.strip()[:300],
            )
            raise NullDeviceProblem(
                f"the null device does not compile here: {said}", detail=done.stderr
            )
        return done.stdout

    def objects(self, sources: list[Path]) -> list[Path]:
        """Each source compiled, two at a time."""
        made = [self.scratch / f"{source.stem}.o" for source in sources]

        def compile_one(pair: tuple[Path, Path]) -> None:
            self.run(*FLAGS, *self.defines, *self.includes, "-c", str(pair[0]), "-o", str(pair[1]))

        with ThreadPoolExecutor(max_workers=2) as pool:
            list(pool.map(compile_one, zip(sources, made, strict=True)))
        return made


def _build(build: CudaBuild, made: Path, scratch: Path) -> None:
    compiler = _Compiler(build, scratch)
    names, functions = needed(build)
    functions |= driver_functions(build)
    objects = compiler.objects(sorted(SOURCES.glob("*.c")))
    written = set(symbols(objects, "-g", "--defined-only"))
    answered, unread = _answers(compiler, build, functions - written, scratch)
    generated = set(symbols(answered, "-g", "--defined-only"))
    stubs = sorted(functions - written - generated)
    listed = "".join(f'"{name}", ' for name in sorted(names))
    (scratch / "names.c").write_text(f"const char *const null_names[] = {{{listed}0}};\n")
    (scratch / "stubs.c").write_text('#include "null.h"\n' + "".join(map(answers.stub, stubs)))
    objects += [*answered, *compiler.objects([scratch / "names.c", scratch / "stubs.c"])]
    _link(compiler, objects, sorted(names), made)
    files = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(made.iterdir())
        if not file.is_symlink()
    }
    counts: dict[str, object] = {
        "unread": unread,
        "written": len(written & functions),
        "generated": len(generated & functions),
        "stubs": len(stubs),
    }
    (made / "manifest.json").write_text(
        json.dumps({"torch": build.version, "files": files, **counts}, indent=1)
    )


def _answers(
    compiler: _Compiler, build: CudaBuild, functions: set[str], scratch: Path
) -> tuple[list[Path], list[str]]:
    """Objects of the answers that follow from prototypes, and libraries whose headers C cannot read
    (cuSPARSELt's are C++).
    """

    def one(library: answers.Library) -> list[Path] | None:
        mine = {name for name in functions if answers.library_of(name) is library}
        source = scratch / f"answers_{library.prefix}.c"
        try:
            text = answers.generated(library, mine, list(build.headers), compiler.preprocessed)
            source.write_text(text)
            return compiler.objects([source]) if text else []
        except NullDeviceProblem:
            return None

    with ThreadPoolExecutor(max_workers=2) as pool:
        made = list(pool.map(one, answers.LIBRARIES))
    unread = [
        library.prefix
        for library, objects in zip(answers.LIBRARIES, made, strict=True)
        if objects is None
    ]
    return [each for objects in made for each in objects or []], unread


def _link(compiler: _Compiler, objects: list[Path], names: list[str], made: Path) -> None:
    """One library has all the code; one of each name is empty, wants it, and keeps the real library
    of that name away.
    """
    empty = compiler.scratch / "empty.c"
    empty.write_text("")
    empty_object = str(compiler.objects([empty])[0])
    ours = ["-L", str(made), "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"]
    for name in names:
        compiler.run("-shared", "-o", str(made / name), empty_object, f"-Wl,-soname,{name}")
    wants = [f"-l:{name}" for name in names]
    core = [
        "-shared",
        "-pthread",
        "-o",
        str(made / LIBRARY),
        *map(str, objects),
        f"-Wl,-soname,{LIBRARY}",
    ]
    compiler.run(*core, "-Wl,-Bsymbolic-functions", *ours, *wants, "-ldl")
    for name in names:
        compiler.run(
            "-shared",
            "-o",
            str(made / name),
            empty_object,
            f"-Wl,-soname,{name}",
            *ours,
            f"-l:{LIBRARY}",
        )
    (made / "libcuda.so").symlink_to("libcuda.so.1")  # what Triton links its launchers against
