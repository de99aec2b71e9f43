"""The probes, found in these packages and the families' ones, in the order of their start."""

import importlib
import importlib.util
import pkgutil
from collections.abc import Iterable, Iterator
from types import ModuleType

from auditor.capture import probes
from auditor.capture.probes.base import Context, Probe


def homes(package: ModuleType, inner: str = "") -> Iterator[ModuleType]:
    """The packages of a package, or those of this name in each of them that has one."""
    for each in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        name = f"{each.name}.{inner}" if inner else each.name
        if each.ispkg and importlib.util.find_spec(name) is not None:
            yield importlib.import_module(name)


def find(packages: Iterable[ModuleType]) -> tuple[type[Probe], ...]:
    """The probes that the modules of these packages define, in the order of these modules but for
    :attr:`Probe.after`.

    A probe is a class with a name; a class without one is a base of others. Raises TypeError for two
    probes of one name.
    """
    found: dict[str, type[Probe]] = {}
    for package in packages:
        for probe in _defined(package):
            if probe.name in found:
                raise TypeError(
                    f"two probes are named {probe.name!r}: {found[probe.name].__module__} and "
                    f"{probe.__module__}"
                )
            found[probe.name] = probe
    return tuple(_ordered(found))


def _defined(package: ModuleType) -> Iterator[type[Probe]]:
    for info in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        module = importlib.import_module(info.name)
        classes = [
            each
            for each in vars(module).values()
            if isinstance(each, type) and issubclass(each, Probe)
        ]
        yield from (
            each for each in classes if each.__module__ == info.name and hasattr(each, "name")
        )


def _ordered(found: dict[str, type[Probe]]) -> Iterator[type[Probe]]:
    """Each time the first one that waits for none."""
    waiting = dict(found)
    while waiting:
        free = next(each for each in waiting.values() if waiting.keys().isdisjoint(each.after))
        yield waiting.pop(free.name)


PROBES = find((*homes(probes), *homes(importlib.import_module("auditor.rules"), "probes")))
"""All but the shadow device's own, which is imported where there is one."""


def select(parts: Iterable[str], context: Context) -> list[Probe]:
    """The probes that write any of ``parts``, and those that every recording has."""
    wanted = frozenset(parts)
    chosen = [probe for probe in PROBES if probe.always or wanted.intersection(probe.parts)]
    if not context.device.shadow:
        return [probe(context) for probe in chosen if probe.in_runs]
    from auditor.capture.probes.rehearsal import RehearsalProbe

    device = RehearsalProbe(context)  # before all others: it says what they ask of the context
    return [device, *(probe(context) for probe in chosen if probe.in_rehearsals)]
