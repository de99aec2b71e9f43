"""The distribution as it is installed (``make test-cuda`` installs it from this folder): pure Python
with the C sources in it, and no test.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

import torch_null_device

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed() -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution("torch-null-device")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("torch-null-device is not installed here")


def test_the_wheel_has_the_c_sources_and_the_licence(installed):
    names = {str(file) for file in installed.files or ()}
    package = ROOT / "torch_null_device"
    files = [*package.glob("*.py"), *package.glob("csrc/*.[ch]"), package / "py.typed"]
    assert len(files) > 50
    assert {str(file.relative_to(ROOT)) for file in files} <= names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert not [name for name in names if "test" in name]


def test_it_is_of_this_version_and_needs_nothing(installed):
    assert installed.version == torch_null_device.__version__
    assert not installed.requires
    assert "Root-Is-Purelib: true" in (installed.read_text("WHEEL") or "")
