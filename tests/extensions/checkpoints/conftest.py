"""A checkpoint that is written and read, each time in a child."""

import pytest
import torch

from auditor.evidence.checkpoints import Checkpoint
from auditor.extensions.checkpoints.files import scans_of


@pytest.fixture
def judged(tmp_path):
    def judge(content, name="x.pt", **more):
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            torch.save(content, path, **more)
        (found,) = scans_of([path])
        if isinstance(found, Exception):
            raise found
        return Checkpoint(found)

    return judge
