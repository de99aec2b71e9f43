"""What a rule may write into a user's file: each rule declares it, and nothing else under its code
is ever made, printed or run.

A report is a file that anybody can write. So the kinds of edit, the functions, the keywords and the
values that a rule may ask for stand at its class (``Rule.edits``), not in the report;
``auditor.patch.permitted`` compares both with the file as it stands.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from auditor.model import Action, Edit
from auditor.syntax.qualified_names import OPTIONS

FLAG = "True|False"
COUNT = r"[1-9]\d?"

ANY = "*"
"""In the place of a function's name: whatever is given the keyword already, but nothing of the
standard library.
"""

Texts = Callable[[ast.Module, "ast.Call | None"], Collection[str]]


@dataclass(frozen=True)
class Permit:
    """One kind of edit that a rule may ask for.

    ``calls`` are full names (``torch.optim.Adam``), which the file's imports must lead to;
    ``.backward`` is a method of an object, ``*`` any call that has the ``keyword`` already. For
    ``set_constant`` they are the full names of what is set. ``value`` is a regular expression for
    the whole of what is written. ``made`` gives the only texts that may be written, from the file's
    syntax and the call that is to be changed. ``safe``: the rule may say that the training result
    cannot change. ``elsewhere``: the value of the keyword may also stand as the default of an
    option, as a constant or in a configuration file.
    """

    action: Action
    calls: tuple[str, ...] = ()
    keyword: str = ""
    value: str = ""
    safe: bool = False
    elsewhere: bool = False
    made: Texts | None = None

    def covers(self, edit: Edit) -> bool:
        """True if the edit is of this kind, as far as the edit alone tells."""
        if not re.fullmatch(self.value, edit.value) or (edit.safe and not self.safe):
            return False
        return self.names(edit) or self.is_elsewhere(edit)

    def names(self, edit: Edit) -> bool:
        """True if the edit changes what the permit names itself."""
        if edit.action != self.action:
            return False
        if edit.action in ("set_constant", "set_value"):
            named = {last(call) for call in self.calls} if self.calls else {self.keyword}
            return not edit.call and edit.span is None and edit.keyword in named
        called = edit.call in {last(call) for call in self.calls} or (
            ANY in self.calls and edit.call.isidentifier()
        )
        return (called or not (self.calls or edit.call)) and edit.keyword == self.keyword

    def is_elsewhere(self, edit: Edit) -> bool:
        """True if the edit changes the value where the call takes it from."""
        if not self.elsewhere:
            return False
        if edit.action == "set_keyword":
            return edit.call in OPTIONS and edit.keyword == "default"
        if edit.action == "set_constant":
            return not edit.call and edit.span is None and edit.keyword.isidentifier()
        return edit.action == "set_value" and not edit.call and path_of(edit) != ()


def last(name: str) -> str:
    """``Adam`` of ``torch.optim.Adam``."""
    return name.rpartition(".")[2]


def path_of(edit: Edit) -> tuple[str | int, ...]:
    """The place of the value that a ``set_value`` of a document sets; empty if it is none."""
    try:
        path = json.loads(edit.keyword)
    except (ValueError, RecursionError):
        return ()
    plain = isinstance(path, list) and all(isinstance(key, (str, int)) for key in path)
    return tuple(path) if plain and path and isinstance(path[-1], str) else ()


def outside(permits: Iterable[Permit], edits: Iterable[Edit]) -> Edit | None:
    """The first edit that none of the permits covers; None if all are covered."""
    kinds = tuple(permits)
    return next((edit for edit in edits if not any(kind.covers(edit) for kind in kinds)), None)


# -- permits that several rules share --------------------------------------------------------------

ALLOCATOR_OPTION = (
    r"(expandable_segments:(True|False)|max_split_size_mb:\d{1,6}|garbage_collection_threshold:0\.\d{1,4}"
    r"|roundup_power2_divisions:(\d{1,3}|\[[\d:,>]{1,80}\])|per_process_memory_fraction:0\.\d{1,4})"
)
ALLOCATOR = tuple(
    Permit("set_value", keyword=name, value=f"{ALLOCATOR_OPTION}(,{ALLOCATOR_OPTION})*", safe=True)
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
)
"""Settings of the caching allocator, none of which names a library to load."""

LOADER = (
    "torch.utils.data.DataLoader",
    "torch_geometric.loader.DataLoader",
    "monai.data.DataLoader",
)

OPTIMIZERS = tuple(
    f"torch.optim.{name}"
    for name in tuple(
        "Adam AdamW SGD Adagrad Adadelta Adamax ASGD NAdam RAdam RMSprop Rprop Adafactor".split()
    )
)
