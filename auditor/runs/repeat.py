"""One of the runs that ``audit reproduce`` lays beside each other: what is held fixed in it."""

import msgspec

HELD = ("torch", "random", "numpy", "clock", "system", "hash")
"""What a run can be asked to hold: the three generators, the clock as the program reads it, what it
asks the operating system for, and the hash seed of its strings.
"""

VALUES = 4096
"""Values of one operator that are kept where they are asked for."""


class Repeat(msgspec.Struct, frozen=True, tag=True):
    """A run of ``audit reproduce``: its operators are watched from the import of torch on.

    What is in ``held`` (of :data:`HELD`) is the same in each run that holds it: a generator begins
    at one seed, and is given that one where the program seeds it. Of the operator number ``keep``
    (-1: none) values are kept.
    """

    held: tuple[str, ...] = ()
    keep: int = -1
