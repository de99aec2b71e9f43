"""Torch as it would be without some of its private names, for the one place that looks them up."""

import contextlib
import importlib.util
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from auditor.capture.instruments import torch_private
from auditor.capture.instruments.torch_private import look_up

SUBJECTS = ("autograd", "compiler", "cuda", "data", "dispatch", "tensors", "training")


@contextlib.contextmanager
def hidden(*paths: str) -> Iterator[None]:
    """Modules imported in this block do not find these names; torch is left as it is."""
    find, on_instances, in_dict = look_up._find, look_up.on_instances, look_up.in_dict

    def fewer(path: str) -> Any:
        return (
            look_up._NOTHING
            if any(path == each or path.startswith(f"{each}.") for each in paths)
            else find(path)
        )

    def never(read: Any) -> Any:
        def reader(path: str, *otherwise: Any) -> Any:
            known = read(path, *otherwise)
            return (
                (lambda instance: otherwise[0] if otherwise else None) if path in paths else known
            )

        return reader

    known = dict(look_up.FOUND)
    look_up._find, look_up.on_instances, look_up.in_dict = (
        fewer,
        never(on_instances),
        never(in_dict),
    )
    try:
        yield
    finally:
        look_up._find, look_up.on_instances, look_up.in_dict = find, on_instances, in_dict
        look_up.FOUND.clear()
        look_up.FOUND.update(known)


def accessors(*without: str) -> SimpleNamespace:
    """All accessors by name, made anew in a torch without these names."""
    found: dict[str, Any] = {}
    for subject in SUBJECTS:
        name = f"{torch_private.__name__}.{subject}"
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        with hidden(*without):
            spec.loader.exec_module(module)
        found.update(vars(module))
    return SimpleNamespace(**found)
