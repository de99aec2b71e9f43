"""TRAIN006: the order in which samples come."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.batches import Batches, Loader
from auditor.evidence.source.files import Source, name_of, the_only
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.rule import Rule, knob

ORDERED = frozenset({"sampler", "batch_sampler", None})
"""Keywords of a DataLoader that say an order themselves, or hide what is given."""

BEFORE = 2
"""Arguments before ``shuffle``."""


@dataclass(frozen=True)
class SortedByClass(Rule):
    """A training loader goes through the classes one after the other, in the same order each epoch."""

    code = "TRAIN006"
    severity = Severity.WARNING
    since = "0.2"
    rehearsed = True
    everywhere = True

    fewest: int = knob(3, "Report only loaders with at least this many batches.")
    each: float = knob(
        4.0, "Report only if a class averages at least this many samples: else they may be values."
    )
    share: float = knob(0.9, "Report only if at least this share of the steps takes a batch of it.")

    def detect(self, batches: Batches, source: Source) -> Iterator[Finding]:
        batches.need_a_loader()
        usual = batches.usual(self.share)
        if usual is None:
            return
        loader, taken = usual
        classes, samples, length = loader.sorted_classes, loader.samples, loader.length
        if classes is None or samples is None or length is None or length < self.fewest:
            return
        if classes < 2 or samples < self.each * classes:
            return
        if any(each.in_order < each.n for each in taken):
            return
        edit = _edit(source, loader)
        yield Finding(
            loader.made_at or loader.consumed_at,
            f"each epoch goes through the {classes} classes of {loader.dataset} one after the other "
            f"({samples:,} samples in {length:,} batches), always in the same order",
            steps=len(taken),
            per_step=1.0,
            remedy=Remedy(
                "Draw a new order in each epoch: shuffle=True.", () if edit is None else (edit,)
            ),
        )


def _edit(source: Source, loader: Loader) -> Edit | None:
    site = loader.made_at
    if site is None:
        return None
    call = the_only(
        each
        for each in source.calls_at(site)
        if name_of(each.func) == "DataLoader" and each.lineno == site.line
    )
    stars = call is not None and any(isinstance(each, ast.Starred) for each in call.args)
    if call is None or len(call.args) > BEFORE or stars:
        return None
    given = {each.arg: each.value for each in call.keywords}
    if given.keys() & ORDERED or not isinstance(given.get("shuffle"), ast.Constant | None):
        return None
    return Edit(
        site,
        "set_keyword",
        call="DataLoader",
        keyword="shuffle",
        value="True",
        reason="samples come in another order, so training changes",
    )
