"""WASTE006: positions of a batch that are padding."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.batches import Batches, Loader, Texts
from auditor.evidence.source.files import Source, the_only
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob
from auditor.syntax.index import name_of

PACKED = (
    "pack_padded_sequence",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "unpad_input",
    "flash_attn_varlen_func",
)
"""Calls after which padding takes no part in what is computed."""


LONGEST = "True"
"""What a tokenizer of Transformers is told for rows as wide as the longest of their batch (as
``"longest"``: docs of PreTrainedTokenizerBase.__call__, ``padding``).
"""

TRIMMED = (
    "Pad each batch to its longest row (pad_sequence; a tokenizer's padding=True), rounded up to a "
    "multiple of 8 or 64."
)


@dataclass(frozen=True)
class PaddingComputed(Rule):
    """Much of what the step computes is padding."""

    code = "WASTE006"
    severity = Severity.WARNING
    since = "0.2"
    rehearsed = True
    everywhere = True
    advice = (
        "Batch rows of similar length (a batch sampler that sorts within a few hundred "
        "batches and shuffles these), or pack several rows into one."
    )

    share: float = knob(
        0.2,
        "Report if padding to the longest row of each batch would save this share of positions.",
    )
    sorted_share: float = knob(
        0.3, "Report a note if batches of similar length would save this share of positions."
    )
    fewest: int = knob(3, "Report only from this many padded batches.")

    def detect(self, batches: Batches, source: Source) -> Iterator[Finding]:
        batches.need_a_loader()
        if any(source.first_call(name) is not None for name in PACKED):
            return
        for loader in batches.loaders:
            taken = [each for each in batches.loud if each.loader == loader.number]
            texts = [one for each in taken for one in each.texts]
            many = sum(each.batches for each in taken)
            if self.fewest <= len(texts) and 2 * len(texts) > many:
                yield from self._wasted(loader, texts, len(taken), source)

    def _wasted(
        self, loader: Loader, texts: list[Texts], steps: int, source: Source
    ) -> Iterator[Finding]:
        lengths = [length for each in texts for length in each.lengths]
        positions = sum(each.positions for each in texts)
        longest = sum(max(each.lengths) * len(each.lengths) for each in texts)
        padding = (positions - sum(lengths)) / positions
        trimmed = (positions - longest) / positions
        alike = (positions - _sorted_positions(texts)) / positions
        fixed = trimmed >= self.share
        if not fixed and alike < self.sorted_share:
            return
        saved = trimmed if fixed else alike
        way = "padding to each batch's longest row" if fixed else "batches of similar length"
        yield Finding(
            loader.collate_at or loader.made_at or loader.consumed_at,
            f"{amounts.percent(padding)} of the positions in a batch are padding (rows of "
            f"{min(lengths):,} to {max(lengths):,} in {_widths(texts)}); {way} would save "
            f"{amounts.percent(saved)} of the positions",
            steps=steps,
            per_step=len(texts) / steps,
            # another width is another graph, and another order another training
            severity=None if fixed and source.first_call("compile") is None else Severity.NOTE,
            facts=(
                ("positions that are padding", amounts.percent(padding)),
                ("saved by padding to the longest row of a batch", amounts.percent(trimmed)),
                ("saved by batches of similar length", amounts.percent(alike)),
            ),
            remedy=Remedy(TRIMMED, tuple(_asked(source, loader.collate_at))) if fixed else None,
        )


def _asked(source: Source, collate: Site | None) -> Iterator[Edit]:
    """Of the only collate call given ``padding="max_length"``: others may see single rows."""
    if collate is None:
        return
    place = collate.file, collate.line
    found = the_only(
        node
        for file, function in source.functions
        if (file, function.lineno) == place
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
        for item in node.keywords
        if item.arg == "padding"
        and isinstance(item.value, ast.Constant)
        and item.value.value == "max_length"
    )
    if found is not None:
        site, call = source.site_of(collate.file, found), name_of(found.func)
        reason = "batches get other widths: if a mask is missing, results change"
        yield Edit(site, "set_keyword", call, "padding", LONGEST, reason=reason)


def _sorted_positions(texts: Sequence[Texts]) -> int:
    """Positions of the same rows, in batches of the same sizes, by length."""
    lengths = sorted((length for each in texts for length in each.lengths), reverse=True)
    positions = begin = 0
    for size in (len(each.lengths) for each in texts):
        positions += lengths[begin] * size
        begin += size
    return positions


def _widths(texts: Sequence[Texts]) -> str:
    low, high = min(each.width for each in texts), max(each.width for each in texts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
