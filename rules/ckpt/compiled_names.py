"""What a program knows of the names that a compiled module gives its weights, read off the source."""

from __future__ import annotations

import ast
import re

from auditor.evidence.source.compile_calls import compile_call
from auditor.evidence.source.files import Source, unparsed
from auditor.model import Site

PREFIX = "_orig_mod"
"""The name under which ``torch.compile(module)`` holds the module that it was given."""

_NAMED = re.compile(rf"(?<!\w){PREFIX}(?!\w)")


def knows_prefix(source: Source) -> bool:
    """Whether the program names the prefix anywhere: to take it off, or the module behind it."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == PREFIX)
        or (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _NAMED.search(node.value)
        )
        for file, text in source.texts.items()
        if PREFIX in text
        for node in source.nodes(file)
    )


def loads_into_compiled(source: Source, site: Site) -> bool:
    """Whether a state is loaded, further down in the file, into what this line compiled."""
    call = compile_call(source, site)
    if call is None or not call.target:
        return False
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "load_state_dict"
        and node.lineno > site.line
        and unparsed(node.func.value) == call.target
        for node in source.nodes(site.file)
    )
