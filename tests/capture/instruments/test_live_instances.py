"""All objects of a class that exist."""

import gc

import pytest

from auditor.capture.instruments.live_objects import (
    live_functions,
    live_instances,
    put_back,
    set_aside,
)


class Base:
    pass


class Middle(Base):
    pass


class Left(Middle):
    pass


class Right(Middle, Base):
    pass


class Both(Left, Right):
    pass


class Liar:
    """Says that it is something else."""

    __class__ = Base  # type: ignore[assignment]


class Odd(type):
    """A metaclass that says that all its classes are equal, and has no hash."""

    def __eq__(cls, other):
        return True

    __hash__ = None


class Strange(Base, metaclass=Odd):
    @classmethod
    def __subclasses__(cls):
        raise AssertionError("no code of the program's runs")


class Stranger(Strange):
    pass


def test_those_of_derived_classes_are_found_once_each():
    made = [Base(), Middle(), Left(), Right(), Both(), Strange(), Stranger()]
    liar = Liar()
    found = live_instances(Base)
    assert sorted(map(id, found)) == sorted(map(id, made))
    assert all(each is not liar for each in found)
    assert [type(each) for each in live_instances(Left)] in ([Left, Both], [Both, Left])


@pytest.fixture
def _nothing_frozen():
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    yield
    put_back()
    gc.unfreeze()
    if frozen:
        gc.freeze()


@pytest.mark.usefixtures("_nothing_frozen")
def test_what_is_set_aside_is_listed_and_put_back():
    first = Right()
    set_aside()
    assert gc.get_freeze_count() > 0
    second = Right()
    assert {id(each) for each in live_instances(Right)} >= {id(first), id(second)}
    assert test_what_is_set_aside_is_listed_and_put_back in live_functions()
    assert gc.get_freeze_count() > 0, "a look leaves it as it was"
    put_back()
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("_nothing_frozen")
def test_what_the_program_froze_stays():
    gc.freeze()
    set_aside()
    put_back()
    assert gc.get_freeze_count() > 0
