"""A check that is gathered says each thing that fails it, and passes where none does."""

import pytest

from tests.gathered import for_each


def odd(number):
    assert number % 2, "even"


def test_all_that_fail_are_named():
    with pytest.raises(AssertionError, match=r"(?s)2 of 4:\n2: .*even.*\n4: .*even"):
        for_each([1, 2, 3, 4])(odd)()


def test_nothing_is_said_where_all_pass():
    for_each([1, 3])(odd)()


def test_an_error_is_a_failure():
    with pytest.raises(AssertionError, match="x: TypeError"):
        for_each(["x"])(odd)()
