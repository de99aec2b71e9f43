"""What the auditor sees and says of torch's own CUDA code. Needs a CUDA build of torch and
torch-null-device (``nulldevice/``); most of it runs inside a process on the null device, as
``make test-cuda`` starts it.
"""

from pathlib import Path

import pytest

from auditor import null_device

ROOT = Path(__file__).resolve().parent.parent.parent
LACKING = null_device.lacking()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All are skipped where there can be no null device."""
    if LACKING is not None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                reason = f"tests/cuda: {LACKING.message} (make test-cuda sets one up)"
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def inside():
    """For tests whose own process must be on the null device."""
    if null_device.watching() is None:
        pytest.skip(
            "this process is not on the null device: python -m torch_null_device -- pytest "
            "tests/cuda"
        )
