"""CFG011 and 12: layers that do not follow their model's mode."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from auditor.evidence.source.files import Function, Source, name_of
from auditor.evidence.table import Rows
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.schema.graph import CensusRow

from ..census import CensusSays
from .modes import ON_PURPOSE, function_of, words


class DropoutInEvaluation(CensusSays):
    """Dropout is active in an evaluation in eval mode."""

    code = "CFG011"
    kind = "dropout"
    advice = (
        "Pass training=self.training to a function (dropout_p=p if self.training else 0.0 to "
        "attention); create an nn.Dropout in __init__ as an attribute, or in an nn.ModuleList."
    )

    def said(self, row: CensusRow) -> str:
        of = "of a module that the model does not hold " if row.name[0].isupper() else ""
        return (
            f"{row.name} {of}drops although the model is in eval mode: the score is noisy, and "
            "differs from run to run"
        )

    def detect(  # type: ignore[override]  # the engine reads what it needs off the signature
        self, census: Rows[CensusRow], source: Source
    ) -> Iterator[Finding]:
        """A note where the line asks for it, or a library does it."""
        for finding in super().detect(census):
            site = finding.site
            calls = list(source.calls_at(site)) if site is not None else []
            named = site is not None and bool(words(function_of(source, site)) & ON_PURPOSE)
            meant = finding.severity is Severity.NOTE or named or any(map(_asked, calls))
            edit = None if site is None or meant else _passed_on(source, site, calls)
            yield replace(
                finding,
                severity=Severity.NOTE if meant else None,
                remedy=Remedy(self.advice, () if edit is None else (edit,)),
            )


def _asked(call: ast.Call) -> bool:
    """The call is given ``training``: the program decides."""
    given = len(call.args) > 2 or any(each.arg == "training" for each in call.keywords)
    return "dropout" in name_of(call.func) and given


def _passed_on(source: Source, site: Site, calls: list[ast.Call]) -> Edit | None:
    """``training=self.training`` for the one call of ``dropout`` in a ``forward`` of the line."""
    function = source.index(site.file).scope_at(site.line)
    drops = [call for call in calls if name_of(call.func) == "dropout"]
    if not isinstance(function, Function) or function.name != "forward" or len(drops) != 1:
        return None
    own = [each.arg for each in function.args.args][:1] == ["self"]
    free = len(drops[0].args) < 3 and not any(each.arg is None for each in drops[0].keywords)
    reason = "the evaluation changes: nothing is dropped in eval mode"
    keyword = "training", "self.training"
    return Edit(site, "set_keyword", "dropout", *keyword, reason=reason) if own and free else None


class FrozenNormMoves(CensusSays):
    """A batch norm is frozen, and its running statistics move."""

    code = "CFG012"
    kind = "norm"
    advice = (
        "Call eval() on the frozen layers after each model.train(), as in an own train() method; "
        "requires_grad_(False) freezes parameters alone."
    )

    def said(self, row: CensusRow) -> str:
        where = "" if row.other_at is None else f" at {row.site_of(row.other_at)}"
        return (
            f"{row.n} frozen {row.name}{where} in train mode: the weights stay, but inputs are "
            "normalized by the batch, and the running statistics move"
        )
