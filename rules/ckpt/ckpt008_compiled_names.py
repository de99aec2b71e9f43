"""CKPT008: the weights have the names of a compiled module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.checkpoints import Checkpoints
from auditor.evidence.recorded.compiles import CompiledRegions
from auditor.evidence.recorded.lines import Lines
from auditor.evidence.source.compile_calls import compile_call
from auditor.evidence.source.files import Source, unparsed
from auditor.model import Finding, Severity, Site
from auditor.recordings.schema.data import SaveRow

from ..lines import LineReport
from .files import need_saves


@dataclass(frozen=True)
class CompiledPrefix(LineReport):
    """The weights have the names of a compiled module"""

    code = "CKPT008"
    severity = Severity.NOTE
    since = "0.1"
    advice = (
        "Save model.state_dict() of the module passed to torch.compile, or compile in "
        "place with model.compile(). In an existing file, remove '_orig_mod.' from the keys."
    )

    def detect(
        self, saves: Lines[SaveRow], regions: CompiledRegions, source: Source
    ) -> Iterator[Finding]:
        need_saves(saves)
        if knows_prefix(source) or any(
            loads_into_compiled(source, each.site) for each in regions.regions
        ):
            return
        for line in saves.lines():
            named = next((save.compiled for save in line.rows if save.compiled), "")
            if named:
                yield self.report(
                    line,
                    "the saved weights have the names of a compiled module, such as "
                    f"{named}: load_state_dict of the plain module refuses them",
                    facts=(),
                )

    def in_checkpoint(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            named = [each for each in checkpoint.weights if PREFIX in each.name.split(".")]
            if not named:
                continue
            yield Finding(
                None,
                f"{checkpoint.name}: {amounts.count(len(named), 'weight')} of "
                f"{len(checkpoint.weights)} named as in a compiled module, such as {named[0].name}",
                steps=1,
                seen_on="source",
                facts=(("file", checkpoint.scan.path),),
            )


# -- compiled names --------------------------------------------------------------------------------
# What a program knows of the names that a compiled module gives its weights, read off the source.


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
