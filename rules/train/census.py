"""TRAIN019, 20 and 28: weights that are no longer one, networks that are one, and states of others."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from auditor.evidence.source.files import Source, the_only, unparsed
from auditor.evidence.table import Rows
from auditor.model import Finding, Severity, Site
from auditor.recordings.schema.graph import CensusRow
from auditor.rule import knob
from auditor.syntax.index import nodes_in, targets_of

from ..census import CensusSays
from ..cfg.modes import words

APART = frozenset(
    """
    target targ tgt teacher ema momentum average averaged avg slow old frozen ref reference shadow
    """.split()
)
"""Words in names of networks that follow the trained one, or stay behind it."""


class TieIsLost(CensusSays):
    """Two weights were tied, and are now trained separately."""

    code = "TRAIN019"
    SAID: ClassVar = {
        "untied": "{row.name} and {row.other}{tied} are two separate parameters now, and the "
        "optimizer trains each on its own",
    }
    advice = (
        "Tie them again after the line that replaces one of them and before the optimizer is "
        "created: head.weight = embedding.weight."
    )

    def said(self, row: CensusRow, **words: object) -> str:
        tied = f", tied at {row.site_of(row.other_at)}," if row.other_at is not None else ""
        return super().said(row, tied=tied, **words)


class TargetIsTheTrainedOne(CensusSays):
    """A target network is the network that is trained."""

    code = "TRAIN020"
    advice = (
        "Create it once by copy.deepcopy(), with requires_grad_(False), and update it by "
        "target.load_state_dict(online.state_dict())."
    )

    def detect(self, census: Rows[CensusRow], source: Source) -> Iterator[Finding]:
        """If the line calls one name, says that it is another network, and which one is trained."""
        for row in census:
            site, names = row.site, row.other.split()
            if row.kind != "alias" or site is None:
                continue
            called = {unparsed(call.func) for call in source.calls_at(site)} & set(names)
            behind = next((name for name in sorted(called) if words(name) & APART), None)
            trained = next((name for name in names if not words(name) & APART), None)
            if behind is not None and trained is not None:
                calls = (call for _, call in source.every(ast.Call))
                shared = sum(unparsed(call.func) == behind for call in calls) > 1
                yield Finding(
                    _aliased(source, site, behind, names) or site,
                    f"{behind} and {trained} are the same {row.name} with the same parameters: "
                    f"{behind} changes with each step of the optimizer",
                    severity=Severity.NOTE if shared else None,
                    facts=(("called without gradients at", str(site)),),
                )


def _aliased(source: Source, site: Site, name: str, names: list[str]) -> Site | None:
    """The one assignment that gives it another of these names."""
    return the_only(
        source.site_of(file, node)
        for file, node in source.every(ast.Assign)
        if unparsed(node.value) in names and name in map(unparsed, node.targets)
    )


@dataclass(frozen=True)
class StateOfOtherSamples(CensusSays):
    """A recurrent state is carried over to shuffled batches."""

    code = "TRAIN028"
    SAID: ClassVar = {
        "state": "{row.name} begins {row.n} of {row.steps} batches with the last state of the "
        "batch before, but the loader shuffles: the state is that of other samples",
    }
    advice = (
        "Begin each batch with a new state (pass none), or let the loader give consecutive pieces "
        "of the same sequences: shuffle=False, and a sampler for them."
    )

    fewest: int = knob(3, "Report only a state carried over to at least this many batches.")
    share: float = knob(0.5, "Report only if at least this share of the batches got such a state.")

    def detect(self, census: Rows[CensusRow], source: Source) -> Iterator[Finding]:
        """At the line that keeps the state, else at the call of the layer."""
        for row in census:
            site, above = row.site, row.site_of(row.other_at)
            if row.kind in self.SAID and site is not None and row.n >= self.fewest:
                kept = _state_assignment(source, above) or _state_assignment(source, site)
                if row.n >= self.share * row.steps:
                    yield Finding(kept or site, self.said(row), steps=row.steps)


def _state_assignment(source: Source, site: Site | None) -> Site | None:
    """From the call on, the first assignment to what it is given behind its input."""
    if site is None:
        return None
    calls = source.calls_at(site)
    given = {
        unparsed(each)
        for call in calls
        for part in (*call.args[1:], *(each.value for each in call.keywords))
        for each in nodes_in(part, ast.Name, ast.Attribute)
    } - {"self"}
    scope = source.index(site.file).scope_at(site.line)
    found = (
        node
        for node in nodes_in(scope or (), ast.Assign)
        if (node.end_lineno or node.lineno) >= site.line
        and given & {unparsed(each) for part in targets_of(node) for each in _parts(part)}
    )
    first = min(found, key=lambda node: node.lineno, default=None)
    return None if first is None else source.site_of(site.file, first)


def _parts(target: ast.expr) -> list[ast.expr]:
    return list(target.elts) if isinstance(target, ast.Tuple | ast.List) else [target]
