"""Torch's compiler, once the program imported it: what it leaves alone, and traces for hooks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from types import FrameType, FunctionType, ModuleType
from typing import Any, Final, Protocol, TypeVar

from auditor.capture.instruments.torch_private.look_up import on_instances, private

_F = TypeVar("_F")

PACKAGE: Final = "torch._dynamo"
"""The module that whoever compiles imports. Without it: nothing is compiled, nothing is done."""

_INLINE: Final = "_torchdynamo_inline"
_skip_rules = on_instances("torch._dynamo.trace_rules.SKIP_DIRS")
_rules_anew = on_instances("torch._dynamo.trace_rules._recompile_re")
_LOGGING: Final = private("torch._logging")
_tells = on_instances("torch._logging.trace_structured")
_turned = on_instances("torch._dynamo.eval_frame._maybe_set_eval_frame")
CALL_OF_A_MODULE: Final = "_call_impl"
"""What ``Module.compile()`` hands to the compiler. Without it: such a module has no name."""

HELD: Final = "_orig_mod"
"""The name under which a compiled module holds the one that it was made of. Without it: a rehearsed
program that takes that off fails as it would anywhere.
"""

_stance = on_instances("torch._dynamo.eval_frame._stance")
COMPILED_BACKWARD: Final = "CompiledFunctionBackward"
"""Name of the autograd node of a compiled graph. Without it: no backward is known to be compiled."""

_disabled = on_instances("torch._dynamo.config.disable")
_context = on_instances("torch._dynamo.eval_frame.OptimizedModule.dynamo_ctx")
_callback = on_instances("torch._dynamo.eval_frame._TorchDynamoContext.callback")

TURN: Final = "_maybe_set_eval_frame"
"""Its name: compiled functions call it at both ends. Without it: see :func:`when_left`."""


def _module(name: str) -> ModuleType | None:
    return sys.modules.get(f"{PACKAGE}.{name}")


# -- what is not compiled --------------------------------------------------------------------------


def leave_out(prefixes: Iterable[str]) -> Callable[[], None]:
    """Functions of files whose names begin so are not compiled, until what this returns is called.

    Without ``SKIP_DIRS`` or ``_recompile_re``: nothing is left out, and our hooks that run beneath
    compiled code are compiled as the user's would be.
    """
    rules = _module("trace_rules")
    skipped, anew = _skip_rules(rules), _rules_anew(rules)
    added = list(prefixes)
    if skipped is None or anew is None:
        return lambda: None
    skipped.extend(added)
    anew()

    def back() -> None:
        while added:
            each = added.pop()
            if each in skipped:
                skipped.remove(each)
        anew()

    return back


# -- what is traced in the place of ours -----------------------------------------------------------


class StepMark:
    """What compiled code writes to when it has stepped an optimizer: it is traced, and no hook of
    ours runs in it. Without ``_torchdynamo_inline``: nothing is written to it.
    """

    optimizer: Any = None


MARK: Final = StepMark()
"""One for the process. Without ``_torchdynamo_inline``: it holds nothing."""

# Named as no file is: what lies in a file of ours is left out, which would be a graph break.
_TRACED = """
def nothing(*args, **kwargs):
    return None

def stepped(*args, **kwargs):
    MARK.optimizer = args[0]
"""
exec(compile(_TRACED, "<audit: traced>", "exec"), globals())
NOTHING: Final[FunctionType] = globals()["nothing"]
"""Traced in a hook's place: no operator, no break. Without it: see :func:`traced_as`."""
STEPPED: Final[FunctionType] = globals()["stepped"]
"""Traced instead of a hook after an optimizer's step: :data:`MARK` holds the optimizer when the
compiled code has run. Without ``_torchdynamo_inline``: see :func:`traced_as`.
"""


def traced_as(function: _F, other: Any) -> _F:
    """The function; the compiler traces ``other`` where it meets it. Without
    ``_torchdynamo_inline`` (a torch that does not ask for it): its graph breaks there.
    """
    if isinstance(function, FunctionType):
        setattr(function, _INLINE, other)
    return function


_BUILTINS: Final = private("torch.jit._builtins")
_operators = on_instances("torch.jit._builtins._builtin_table")


def scripted_as(function: Any, other: Any) -> Callable[[], None]:
    """``torch.jit.script`` takes the function for the operator ``other``, as whose it is known by
    its ``id``; returns what undoes it. Without ``_builtin_table`` a script refuses it.
    """
    _known_as(other, function)

    def undo() -> None:
        _known_as(function, other)  # the table was made while the function was in its place
        (_operators(_BUILTINS) or {}).pop(id(function), None)

    return undo


def _known_as(one: Any, other: Any) -> None:
    operators = _operators(_BUILTINS)  # None until something is scripted
    if operators and id(one) in operators:
        operators[id(other)] = operators[id(one)]


_STAND_INS: Final = "torch._subclasses."


def is_traced(value: object) -> bool:
    """Whether the compiler only hands it through. Without ``torch._subclasses``: no tensor."""
    return type(value).__module__.startswith(_STAND_INS)


# -- what the compiler says of its work ------------------------------------------------------------


class Listener(Protocol):
    """Hears a message: name, what makes its data and text. Without ``trace_structured``: none."""

    def __call__(self, name: str, data: Callable[[], Any], text: Callable[[], Any] | None) -> None:
        """A message."""


def when_told(replace: Callable[[Any, str, Any], None], listener: Listener) -> bool:
    """Have ``listener`` hear what the compiler tells TORCH_TRACE and tlparse, whether these ask for
    it or not. It must not raise.

    Without ``torch._logging.trace_structured``: False, and nothing is known of compilations.
    """
    tells = _tells(_LOGGING)
    if tells is None:
        return False

    def trace_structured(name: str, metadata_fn: Any = dict, **more: Any) -> Any:
        listener(name, metadata_fn, more.get("payload_fn"))
        return tells(name, metadata_fn, **more)

    replace(_LOGGING, "trace_structured", trace_structured)
    return True


def is_compilation(name: str, data: dict[str, Any]) -> bool:
    """A message says that a frame or backward was compiled. Without that name: never."""
    if not name.endswith("compilation_metrics"):
        return False
    return data.get("co_name") is not None or (name.startswith("bwd") and not data.get("fail_type"))


# -- when compiled code has run --------------------------------------------------------------------


_FRAMES: Final = os.path.join(os.sep, "torch", "_dynamo", "eval_frame.py")


def beneath_compiled(frame: FrameType | None) -> bool:
    """Whether a frame, or one that called it, is that of a compiled function, or of one that is kept
    out of them. Without that file's name: no, and nothing is put off.
    """
    while frame is not None:
        if frame.f_code.co_filename.endswith(_FRAMES):
            return True
        frame = frame.f_back
    return False


def callback_of(compiled: Any) -> Any:
    """What a compiled function or module, as ``torch.compile`` gave it, calls the compiler by: one
    for each call of ``torch.compile``.

    Without ``dynamo_ctx`` and a closure over ``callback``: None, and it is unknown whether it ran.
    """
    context = _context(compiled)
    if context is not None:
        return _callback(context)
    names = getattr(getattr(compiled, "__code__", None), "co_freevars", ())
    cells = getattr(compiled, "__closure__", None) or ()
    named = dict(zip(names, cells, strict=False))
    return named["callback"].cell_contents if "callback" in named else None


def forced_to() -> str:
    """The compiler's stance, ``disabled`` if it is off. Without ``_stance``: ``default``."""
    if _disabled(_module("config")):
        return "disabled"
    stance = _stance(_module("eval_frame"))
    return str(getattr(stance, "stance", "default"))


def when_left(
    replace: Callable[[Any, str, Any], None],
    action: Callable[[], None],
    waits: Callable[[], bool] = lambda: True,
    entered: Callable[[object], None] = lambda callback: None,
) -> bool:
    """Have ``action`` called whenever a compiled function has returned that no other one called, if
    something ``waits`` for it (finding the caller walks the stack), and ``entered`` with its
    callback whenever one begins; ``replace`` sets an attribute.

    Without ``_maybe_set_eval_frame``: False, and optimizers that step in compiled code are not
    noticed.
    """
    frames = _module("eval_frame")
    turned = _turned(frames)
    if turned is None:
        return False

    def turns(callback: Any) -> Any:
        before = turned(callback)
        if callable(callback):
            entered(callback)
        elif callback is None and waits() and not beneath_compiled(sys._getframe(1).f_back):
            action()
        return before

    replace(frames, TURN, turns)
    return True
