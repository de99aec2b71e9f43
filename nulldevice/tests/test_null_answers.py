"""What is answered by a prototype, the table of GPUs, and building: all that needs neither CUDA nor
a compiler.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from torch_null_device import GPUS, NullDeviceProblem, found, gpu_named
from torch_null_device import build as building
from torch_null_device.answers import (
    answer,
    definition,
    generated,
    library_of,
    prototypes,
    stub,
)
from torch_null_device.found import REPLACED, CudaBuild, cuda_build
from torch_null_device.variables import LIBRARY, without_null_device

HEADER = r"""
/* cublasWrong_t cublasInComment(int a); */
#define cublasMacro(a) \
    cublasStatus_t cublasInMacro(int a);
cublasStatus_t CUBLASWINAPI cublasCreate_v2(cublasHandle_t* handle);
cublasStatus_t CUBLASWINAPI cublasDestroy_v2(cublasHandle_t handle);
CUBLASAPI cublasStatus_t CUBLASWINAPI cublasSgemm_v2(cublasHandle_t handle, // which one
    int m, const float* alpha, const float *const A[], float* C);
cusolverStatus_t CUSOLVERAPI cusolverDnSpotrf_bufferSize(cusolverDnHandle_t handle, int n, float *A, int lda, int *Lwork);
cusparseStatus_t CUSPARSEAPI cusparseSpMM(cusparseHandle_t handle, const void* alpha, cudaStream_t stream);
cublasStatus_t cublasLoggerConfigure(int logIsOn, const char* logFileName);
cublasStatus_t cublasSetCallback(void (*function)(const char *), int level);
cudnnStatus_t CUDNNWINAPI cudnnGetThing(cudnnHandle_t handle, int *thing);
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t streamId);
"""


def test_prototypes_are_read_from_a_header():
    known = prototypes(HEADER)
    assert "cublasInComment" not in known
    assert "cublasInMacro" not in known
    assert "cublasSetCallback" not in known, "pointers to functions are left out"
    product = known["cublasSgemm_v2"]
    assert [one.name for one in product.parameters] == ["handle", "m", "alpha", "A", "C"]
    assert product.returns == "cublasStatus_t"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cublasCreate_v2", "null_new_handle()"),
        ("cublasDestroy_v2", "null_free_handle"),
        (
            "cublasSgemm_v2",
            'null_library_launch("cublasSgemm_v2", null_handle_stream((const void *)handle))',
        ),
        ("cusolverDnSpotrf_bufferSize", "*Lwork = 0"),
        ("cusparseSpMM", 'null_library_launch("cusparseSpMM", stream)'),
        ("cusolverDnSetStream", "one->stream = streamId"),
    ],
)
def test_a_function_is_answered_by_what_it_is(name, said):
    function = prototypes(HEADER)[name]
    body = answer(function, 15)
    assert body is not None
    assert said in body
    assert definition(function, body).startswith(f"EXPORT {function.returns} {name}(")


@pytest.mark.parametrize("name", ["cudnnGetThing", "cublasLoggerConfigure"])
def test_what_a_prototype_does_not_tell_stays_unanswered(name):
    assert answer(prototypes(HEADER)[name], 15) is None
    assert f'null_unanswered("{name}"' in stub(name)


def test_a_text_that_is_asked_for_is_a_text_in_a_stub_as_well():
    assert "const char *curandGetErrorString(void)" in stub("curandGetErrorString")


@pytest.mark.parametrize(
    ("function", "prefix"),
    [
        ("cublasLtMatmul", "cublasLt"),
        ("cublasSgemm_v2", "cublas"),
        ("cudaMalloc", "cuda"),
        ("cuMemMap", "cu"),
    ],
)
def test_functions_belong_to_the_library_of_their_prefix(function, prefix):
    library = library_of(function)
    assert library is not None
    assert library.prefix == prefix
    assert f"{library.unsupported}, &said" in stub(function)


def test_a_library_without_headers_generates_nothing(tmp_path):
    library = library_of("cusolverDnCreate")
    assert library is not None
    assert generated(library, {"cusolverDnCreate"}, [tmp_path], lambda text: text) == ""


@pytest.mark.parametrize(
    "name",
    [
        "libcudart.so.13",
        "libcudart.faf08d9a.so.13",
        "libcudart-a7b20f20.so.11.0",
        "libcudnn.so.9",
        "libcublasLt.so.12",
    ],
)
def test_libraries_that_are_replaced(name):
    assert REPLACED.match(name)


@pytest.mark.parametrize(
    "name",
    [
        "libnvrtc.so.13",
        "libnvJitLink.so.13",
        "libtorch_cuda.so",
        "libcudnn_graph.so.9",
        "libc10_cuda.so",
    ],
)
def test_libraries_that_stay(name):
    assert not REPLACED.match(name)


# ---- GPUs ----


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("H100", "H100"),
        ("a100", "A100-80GB"),
        ("A100-40GB", "A100-40GB"),
        ("rtx 4090", "RTX4090"),
        ("Tesla T4", "T4"),
        ("RTX PRO 5000", "RTX-PRO-5000"),
    ],
)
def test_a_gpu_is_found_by_its_name(name, key):
    assert gpu_named(name).key == key


def test_an_unknown_gpu_is_one_sentence_with_those_that_are_known():
    with pytest.raises(NullDeviceProblem, match="no GPU model 'H900' is known") as caught:
        gpu_named("H900")
    assert "H100, H200, B200" in caught.value.hint


PUBLISHED = {
    "H100": 3.35e12,
    "H200": 4.8e12,
    "B200": 7.7e12,
    "A100-80GB": 2.039e12,
    "A100-40GB": 1.555e12,
    "L4": 300e9,
    "A10": 600e9,
    "RTX4090": 1008e9,
    "V100": 900e9,
    "RTX3090Ti": 1008e9,
    "RTX-PRO-5000": 1344e9,
    "T4": 320e9,
}
"""Bytes a second by NVIDIA's data sheets."""


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.key)
def test_bus_and_clock_make_the_published_bandwidth(gpu):
    assert gpu.bandwidth_bytes == pytest.approx(PUBLISHED[gpu.key], rel=0.03)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.key)
def test_settings_are_plain_fields(gpu):
    fields = dict(field.split("=") for field in gpu.setting.split(";"))
    assert fields["name"] == gpu.name
    assert int(fields["memory"]) == gpu.memory_bytes


# ---- what is installed, and the cache ----


@pytest.mark.parametrize(
    ("told", "same"), [("__version__ = '2.13.0+cpu'\n", "torch==2.13.0"), ("", "torch")]
)
def test_a_torch_without_cuda_is_one_sentence(tmp_path, told, same):
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "version.py").write_text(told)
    with pytest.raises(NullDeviceProblem, match="has no CUDA in it") as caught:
        cuda_build(tmp_path)
    assert f"pip install {same} --index-url" in caught.value.hint


def test_no_headers_is_one_sentence(tmp_path):
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "lib" / "libtorch_cuda.so").touch()
    (tmp_path / "torch" / "version.py").write_text(
        "__version__ = '2.14.1+cu130'\ncuda: Optional[str] = '13.0'\n"
    )
    with pytest.raises(NullDeviceProblem, match="no CUDA headers were found"):
        cuda_build(tmp_path)


def test_no_compiler_is_one_sentence(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NullDeviceProblem, match="no cc or gcc is on the PATH") as caught:
        found.tool("cc", "gcc")
    assert "install a C compiler" in caught.value.hint


ROOT = Path(found.__file__).parents[1]


@pytest.fixture
def installed(tmp_path, monkeypatch) -> CudaBuild:
    """A CUDA build as files, whose null device is a text."""
    site = tmp_path / "site"
    (site / "torch" / "lib").mkdir(parents=True)
    (site / "torch" / "lib" / "libtorch_cuda.so").write_bytes(b"torch")
    (site / "torch" / "version.py").write_text(
        "__version__ = '2.14.1+cu130'\ncuda: Optional[str] = '13.0'\n"
    )
    include = site / "nvidia" / "cu13" / "include"
    include.mkdir(parents=True)
    (include / "driver_types.h").touch()
    monkeypatch.delenv("TORCH_NULL_DEVICE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(building, "tool", lambda *names: sys.executable)
    monkeypatch.setattr(building, "_build", built)
    built.times = 0
    return cuda_build(site)


def built(build: CudaBuild, made: Path, scratch: Path) -> None:
    built.times += 1
    (made / LIBRARY).write_text("a library")
    digest = building.hashlib.sha256(b"a library").hexdigest()
    (made / "manifest.json").write_text(
        json.dumps({"files": {LIBRARY: digest}, "written": 1, "generated": 2, "stubs": 3})
    )


def test_it_is_built_once_and_kept_for_its_user_alone(installed):
    first, second = building.null_device(installed), building.null_device(installed)
    assert first == second
    assert built.times == 1
    assert first.library.read_text() == "a library"
    assert stat.S_IMODE(building.cache_folder().stat().st_mode) == 0o700
    assert not list(building.cache_folder().glob("building-*")), "no scratch is left"


def test_what_was_spoiled_is_built_again(installed):
    building.null_device(installed).library.write_text("a library of somebody else")
    assert building.null_device(installed).library.read_text() == "a library"
    assert built.times == 2


def test_another_torch_gets_a_build_of_its_own(installed):
    first = building.null_device(installed)
    (installed.site / "torch" / "lib" / "libtorch_cuda.so").write_bytes(b"another torch")
    assert building.null_device(cuda_build(installed.site)).folder != first.folder
    assert built.times == 2


def test_a_cache_that_others_may_write_to_is_refused(installed):
    os.chmod(building.cache_folder(), 0o777)
    with pytest.raises(NullDeviceProblem, match="others may write to"):
        building.null_device(installed)


def test_it_is_kept_where_the_variable_says(installed, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_NULL_DEVICE_CACHE", str(tmp_path / "named"))
    assert building.null_device(installed).folder.is_relative_to(tmp_path / "named")


def test_nothing_is_kept_below_the_working_directory(installed, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    with pytest.raises(NullDeviceProblem, match="there is none"):
        building.null_device(installed)


def by_hand(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "torch_null_device", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **variables},
    )


def test_by_hand_it_says_in_one_sentence_what_is_missing(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").touch()
    done = by_hand("--", "true", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 2
    assert done.stderr.startswith("python -m torch_null_device: the torch in ")
    assert done.stderr.count("\n") == 1


def test_another_python_gets_the_null_device_of_its_own_torch(tmp_path):
    torch = tmp_path / "site" / "torch"
    torch.mkdir(parents=True)
    other = tmp_path / "python3.12"
    other.write_text(f"#!/bin/sh\necho {torch}\n")
    other.chmod(0o755)
    done = by_hand("--", str(other), "train.py", PYTHONPATH=str(ROOT))
    assert done.returncode == 2
    assert f"the torch in {tmp_path / 'site'}" in done.stderr


def test_a_child_is_taken_off_the_null_device():
    ours = {
        "LD_PRELOAD": "/c/libnulldevice.so:/x/libasan.so",
        "LD_LIBRARY_PATH": "/c:/usr/lib",
        "TRITON_LIBCUDA_PATH": "/c",
        "NULLDEVICE_GPU": "name=x",
        "NULLDEVICE_COUNT": "1",
        "HOME": "/h",
    }
    assert without_null_device(ours) == {
        "LD_PRELOAD": "/x/libasan.so",
        "LD_LIBRARY_PATH": "/usr/lib",
        "HOME": "/h",
    }
    plain = {"LD_PRELOAD": "/x/libasan.so", "LD_LIBRARY_PATH": "/c"}
    assert without_null_device(plain) == plain


def test_the_page_lists_every_gpu():
    page = (Path(__file__).parents[1] / "README.md").read_text()
    for gpu in GPUS:
        assert (
            f"| `{gpu.key}` | {gpu.memory_bytes / 2**30:.2f} | "
            f"{gpu.capability[0]}.{gpu.capability[1]} | {gpu.processors} |" in page
        )
