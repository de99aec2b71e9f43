"""All objects of a class that exist."""

from auditor.capture.instruments.live_objects import live_instances


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
