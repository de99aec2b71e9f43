"""What a recording holds: the manifest's fields, and one struct for each part's rows
(docs/recording.md is written from them). They are found by what these modules define.
"""

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterator
from types import ModuleType

from auditor.recordings.row import Row
from auditor.recordings.schema import data, dist, graph, numerics, other_runs, run, sync

FAMILIES = "auditor.rules"
"""Rows that one family of rules alone reads stand in its module ``rows``."""


def _modules() -> Iterator[ModuleType]:
    yield from (run, sync, data, graph, numerics, dist, other_runs)
    package = importlib.import_module(FAMILIES)
    for family in pkgutil.iter_modules(package.__path__, FAMILIES + "."):
        name = f"{family.name}.rows"
        if family.ispkg and importlib.util.find_spec(name) is not None:
            yield importlib.import_module(name)


def _rows_of(module: ModuleType) -> Iterator[type[Row]]:
    """Those that it defines, but for bases of others."""
    for each in vars(module).values():
        own = isinstance(each, type) and each.__module__ == module.__name__
        if own and issubclass(each, Row) and not each.__subclasses__():
            yield each


ROWS: tuple[type[Row], ...] = tuple(row for module in _modules() for row in _rows_of(module))
"""In the order of docs/recording.md. Several rows of one part differ by ``what`` or ``call``."""

PARTS: dict[str, tuple[type[Row], ...]] = {
    part: tuple(row for row in ROWS if row.part == part)
    for part in dict.fromkeys(row.part for row in ROWS)
}
"""Types of the rows of each part."""
