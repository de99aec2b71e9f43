"""The CUDA build of torch that is installed: its libraries, what they need of NVIDIA's, and the
headers that came with it.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from torch_null_device.errors import NullDeviceProblem

REPLACED = re.compile(
    r"lib(cudart|cublas|cublasLt|cudnn|cusolver|cusolverMg|cusparse|cusparseLt|cufft|curand|nccl|cupti|cufile|nvshmem_host)"
    r"([-.][0-9a-f]{8})?\.so[.\d]*\Z"
)
"""Libraries that the null device replaces, also as wheels bring copies of them
(``libcudart.faf08d9a.so.13``).

NVRTC and nvJitLink compile, and do that without a GPU: they stay."""

ALWAYS = ("libcuda.so.1", "libnvidia-ml.so.1")
"""The driver's libraries, which programs open by name."""

OURS = re.compile(
    r"(__cuda|cuda[A-Z]|cu[A-Z]|cublas|cudnn|cusolver|cusparse|cufft|curand|nccl|nvml|cupti|nvshmem)"
)
"""How functions begin that belong to the libraries above."""


@dataclass(frozen=True)
class CudaBuild:
    """Where torch's CUDA build is, and what it is made of."""

    site: Path
    """The folder that has ``torch`` in it."""
    version: str
    """torch's version: ``2.14.1+cu130``."""
    cuda: tuple[int, int]
    binaries: tuple[Path, ...]
    """Shared libraries of torch and of what is built on it, which call CUDA."""
    headers: tuple[Path, ...]
    """Folders for the compiler's ``-I``, in order."""

    @property
    def cuda_number(self) -> int:
        """The version as ``cudaRuntimeGetVersion`` tells it: 13000, 12080."""
        major, minor = self.cuda
        return major * 1000 + minor * 10

    def inputs(self) -> list[tuple[str, int, int]]:
        """Name, bytes and time of change of each file that a build reads: equal as long as it would
        come out the same.
        """
        files = [*self.binaries, *libraries_beside(self)]
        files += [header for folder in self.headers for header in sorted(folder.glob("*.h"))]
        return [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def cuda_build(site: Path | None = None) -> CudaBuild:
    """The CUDA build in ``site`` (a site-packages folder), else the one that this Python would
    import; NullDeviceProblem without.
    """
    folder = site / "torch" if site else _torch_folder()
    site = folder.parent
    facts = folder / "version.py"
    told = facts.read_text() if facts.is_file() else ""
    version = re.search(r"__version__\s*(?::[^=]*)?=\s*['\"]([^'\"]+)", told)
    if not (folder / "lib" / "libtorch_cuda.so").is_file():
        same = f"torch=={version[1].partition('+')[0]}" if version is not None else "torch"
        raise NullDeviceProblem(
            f"the torch in {folder} has no CUDA in it, so that there is no CUDA code to run",
            f"install a CUDA build: pip install {same} --index-url https://pypi.org/simple",
        )
    cuda = re.search(r"cuda\s*(?::[^=]*)?=\s*['\"](\d+)\.(\d+)", told)
    if version is None or cuda is None:
        raise NullDeviceProblem(f"{facts} does not tell which CUDA torch was built for")
    numbers = int(cuda[1]), int(cuda[2])
    patterns = (
        "torch/lib/*.so*",
        "torch/_C*.so",
        "torchvision/*.so",
        "torchaudio/**/*.so",
        "torchao/*.so",
    )
    binaries = sorted(
        file for pattern in patterns for file in site.glob(pattern) if not REPLACED.match(file.name)
    )
    return CudaBuild(site, version[1], numbers, tuple(binaries), tuple(_headers(site, numbers[0])))


def _torch_folder() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise NullDeviceProblem(
            "torch is not installed for this Python", "run with the Python of the program"
        )
    return Path(spec.origin).parent


def _headers(site: Path, major: int) -> list[Path]:
    """NVIDIA's own folders of that major version before Triton's, which completes them
    (``crt/host_defines.h``).
    """
    folders = [
        folder
        for folder in sorted(site.glob("nvidia/*/include"))
        if folder.parent.name in {f"cu{major}", "cuda_runtime"}
    ]
    folders += [folder for folder in sorted(site.glob("nvidia/*/include")) if folder not in folders]
    triton = site / "triton" / "backends" / "nvidia" / "include"
    if triton.is_dir():
        folders.append(triton)
    if not any((folder / "driver_types.h").is_file() for folder in folders):
        raise NullDeviceProblem(
            f"no CUDA headers were found beside the torch in {site}",
            "install Triton or nvidia-cuda-runtime, which bring them (pip installs Triton with "
            "every CUDA build of torch)",
        )
    return folders


def libraries_beside(build: CudaBuild) -> list[Path]:
    """NVIDIA's real libraries that the null device replaces, where they are installed: their
    exports are read.
    """
    places = [
        *build.site.glob("nvidia/*/lib/lib*.so*"),
        *build.site.glob("torch/lib/lib*.so*"),
        *build.site.glob("*.libs/lib*.so*"),
    ]
    return sorted(place for place in places if REPLACED.match(place.name))


def tool(*names: str) -> str:
    """The first of these programs that is on the PATH; NullDeviceProblem without any."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    raise NullDeviceProblem(
        f"the null device is compiled once, and no {' or '.join(names)} is on the PATH",
        "install a C compiler: apt-get install gcc, or conda install gcc_linux-64",
    )


def lacking() -> NullDeviceProblem | None:
    """Why there is no null device for this Python's torch, as one sentence with the way out; None
    where it is there, or can be built.
    """
    if sys.platform != "linux":
        return NullDeviceProblem("a null device needs Linux")
    try:
        cuda_build()
        tool("cc", "gcc", "clang")
        tool("nm", "llvm-nm")
        tool("readelf", "llvm-readelf")
    except NullDeviceProblem as problem:
        return problem
    return None


def symbols(files: list[Path], *options: str) -> list[str]:
    """Names of the functions in binaries, without their versions, by options of nm(1)."""
    done = subprocess.run(
        [tool("nm", "llvm-nm"), *options, *map(str, files)],
        capture_output=True,
        text=True,
        check=False,
    )
    return [
        line.split()[-1].partition("@")[0]
        for line in done.stdout.splitlines()
        if len(line.split()) >= 2
    ]


def needed(build: CudaBuild) -> tuple[set[str], set[str]]:
    """Names of the libraries to stand in for, and every function that they export or that torch
    asks of them.
    """
    libraries = libraries_beside(build)
    functions = {
        name
        for name in symbols(libraries, "-D", "--defined-only")
        + symbols(list(build.binaries), "-D", "--undefined-only")
        if OURS.match(name)
    }
    names = {library.name for library in libraries} | set(ALWAYS)
    for binary in build.binaries:
        names |= {name for name in _dynamic(binary) if REPLACED.match(name)}
    own = [binary for binary in build.binaries if binary.name.startswith("lib")]
    return names, functions - set(symbols(own, "-D", "--defined-only"))


def _dynamic(binary: Path) -> list[str]:
    """Libraries that a binary wants (``DT_NEEDED``)."""
    done = subprocess.run(
        [tool("readelf", "llvm-readelf"), "-d", str(binary)],
        capture_output=True,
        text=True,
        check=False,
    )
    return re.findall(r"\(NEEDED\).*\[(.+?)\]", done.stdout)


def driver_functions(build: CudaBuild) -> set[str]:
    """Functions of libcuda by the names that its header knows: ``cuMemAlloc`` and
    ``cuMemAlloc_v2``.
    """
    for folder in build.headers:
        if (folder / "cuda.h").is_file():
            text = (folder / "cuda.h").read_text(errors="replace")
            declared = set(re.findall(r"CUresult\s+CUDAAPI\s+(cu[A-Z]\w+)\s*\(", text))
            renamed = {
                name
                for pair in re.findall(
                    r"#\s*define\s+(cu[A-Z]\w+)\s+(cu[A-Z]\w+)\s*$", text, re.MULTILINE
                )
                for name in pair
            }
            return {name for name in declared | renamed if not name.endswith(("_ptds", "_ptsz"))}
    return set()
