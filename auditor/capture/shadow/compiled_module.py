"""What ``torch.compile`` gives for a module in a rehearsal: one that runs it as it is, and has the
names of a compiled one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from auditor.capture.instruments.torch_private.compiler import HELD


class EagerModule(torch.nn.Module):
    """Holds the module under torch's name for it, so that a program that takes it off again
    (``compiled._orig_mod``), or looks at the keys of ``state_dict()``, goes the way that it goes
    with the compiler. All other attributes are the module's.
    """

    _held: torch.nn.Module
    _made: bool

    def __init__(self, module: torch.nn.Module) -> None:
        self.__dict__["_held"] = module
        self.__dict__["_made"] = False
        super().__init__()
        super().__setattr__(HELD, module)
        self.__dict__["_made"] = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's, with its hooks."""
        return self._held(*args, **kwargs)

    @property
    def training(self) -> bool:  # type: ignore[override]
        """The module's."""
        return bool(self._held.training)

    @training.setter
    def training(self, value: bool) -> None:
        """The module's as well."""
        if self._made:  # not what ``Module.__init__`` sets it to
            self._held.training = value

    def __getattr__(self, name: str) -> Any:
        held = self.__dict__.get("_held")  # a copy has none until it is filled
        if held is None:
            raise AttributeError(name)
        return held if name == HELD else getattr(held, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or hasattr(type(self), name) or not self._made:
            super().__setattr__(name, value)
        else:
            setattr(self._held, name, value)

    def __len__(self) -> int:
        return len(self._held)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._held)  # type: ignore[call-overload,no-any-return]

    def __getitem__(self, place: Any) -> Any:
        return self._held[place]  # type: ignore[index]

    def __bool__(self) -> bool:
        return True
