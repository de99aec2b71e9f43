"""Torch's optimizers import its compiler, which takes as long as torch itself, to say what it is not
to trace. Where nothing else imports it, nobody traces.

Does not import torch: acts while that is imported.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from auditor.capture.instruments.import_hook import AfterImport

_Function = Callable[..., Any]


def _step_with_grad(step: _Function) -> _Function:
    def call(optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        with sys.modules["torch"].set_grad_enabled(optimizer.defaults["differentiable"]):
            return step(optimizer, *args, **kwargs)

    return call


_DECORATORS: tuple[tuple[str, str, Callable[[_Function], _Function]], ...] = (
    ("torch._compile", "_disable_dynamo", lambda function: function),
    ("torch.optim.optimizer", "_use_grad_for_differentiable", _step_with_grad),
)
"""Those that make functions which import the compiler: where they are, and what they come to without
one."""

_put_off: list[str] = []


def put_off() -> None:
    """From the import of torch on, functions of torch import the compiler no more only to keep out
    of it. The program's own import of it is as it was.

    Without the decorators' names, or where torch is imported already: nothing changes.
    """
    if "torch" not in sys.modules:
        for module, name, plain in _DECORATORS:
            AfterImport(module, functools.partial(_replace, module, name, plain)).install()


def is_put_off() -> bool:
    """Whether :func:`put_off` took effect. Without the decorators' names: no."""
    return len(_put_off) == len(_DECORATORS)


def _replace(module: str, name: str, plain: Callable[[_Function], _Function]) -> None:
    decorate = getattr(sys.modules[module], name, None)
    if decorate is not None:
        setattr(sys.modules[module], name, functools.partial(_either, decorate, plain))
        _put_off.append(name)


def _either(
    decorate: _Function,
    plain: Callable[[_Function], _Function],
    function: _Function | None = None,
    *args: Any,
    **kwargs: Any,
) -> _Function:
    if function is None:
        return functools.partial(_either, decorate, plain, *args, **kwargs)
    told, without = decorate(function, *args, **kwargs), plain(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        compiler = sys.modules.get("torch._dynamo")
        return (told if hasattr(compiler, "disable") else without)(*args, **kwargs)

    return call
