"""Every test of rules on tables made by hand is one of their words, too."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from tests.rules.hearing import HEARD, KEPT, LIVE, Hearing, key_of


@cache
def known() -> dict[str, list[dict[str, Any]]]:
    """What was heard when it was last written."""
    return dict(json.loads(HEARD.read_text())) if HEARD.is_file() else {}


@pytest.fixture(autouse=True)
def _storage_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases of TIME004 make it slow."""
    monkeypatch.setattr(os, "fsync", os.fsync)


@pytest.fixture(autouse=True)
def _word_by_word(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Of what the test is told, each finding is in ``heard.json``."""
    if request.path.name in LIVE:
        yield
        return
    from auditor.judging import catalogue

    hearing = Hearing()
    hearing.listen(tuple(catalogue.own_rules()), monkeypatch)
    yield
    writing = request.config.stash.get(KEPT, None)
    if writing is not None:
        if hearing.found:
            writing[key_of(request.node)] = hearing.found
    else:
        said = "if it is meant: python -m tests.rules.hearing"
        assert hearing.found == known().get(key_of(request.node), []), said
