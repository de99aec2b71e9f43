"""Places in the user's source, as people read them."""

from __future__ import annotations

import pytest

from auditor.model import Site


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("train.py", "train.py:10"),
        ("/env/lib/python3.11/site-packages/toy/train.py", "toy/train.py:10"),
        ("/usr/lib/python3/dist-packages/toy/train.py", "toy/train.py:10"),
        ("/home/me/other/train.py", "/home/me/other/train.py:10"),
    ],
)
def test_a_place_in_an_installed_package_begins_with_its_name(file, shown):
    site = Site(file, 10)
    assert str(site) == shown
    assert site.place == (file, 10)
