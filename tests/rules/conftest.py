"""What every test of rules begins with."""

import os

import pytest


@pytest.fixture(autouse=True)
def _storage_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases of TIME004 make it slow."""
    monkeypatch.setattr(os, "fsync", os.fsync)
