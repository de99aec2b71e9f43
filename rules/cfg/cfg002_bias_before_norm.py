"""CFG002: a convolution has a bias that the batch norm behind it takes away."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from auditor import amounts
from auditor.evidence.source.files import Source, Span, name_of, span_of
from auditor.evidence.trace.patterns import Structure
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.rule import NotLooked, Rule, knob
from auditor.syntax.index import nodes_in

# -- conv bias -------------------------------------------------------------------------------------
# Which convolutions of the source have a bias and a batch norm right behind them.


CONVOLUTIONS = {"Conv1d": "BatchNorm1d", "Conv2d": "BatchNorm2d", "Conv3d": "BatchNorm3d"}
BIAS_POSITION = 7
"""Of Conv2d(in, out, kernel, stride, padding, dilation, groups, bias)."""

Made = tuple[Site, str, Span]
"""A constructor's call: its line, its name and its span."""


def biased_before_norm(source: Source) -> tuple[Made, ...]:
    """Neighbours in ``Sequential(...)`` or a list of layers, and ``self.norm(self.conv(x))`` where
    nothing else uses the convolution.
    """
    found: list[Made] = []
    for file in source.texts:
        for node in source.nodes(file):
            found += (_made(source, file, call) for call in _in_a_row(node) if _has_bias(call))
            if isinstance(node, ast.ClassDef):
                found += (
                    _made(source, file, call) for call in _in_a_class(node) if _has_bias(call)
                )
    return tuple(dict.fromkeys(found))


def _made(source: Source, file: str, call: ast.Call) -> Made:
    return source.site_of(file, call), name_of(call.func), span_of(call)


def _in_a_row(node: ast.AST) -> Iterator[ast.Call]:
    layers: list[ast.expr] = []
    if isinstance(node, ast.Call) and name_of(node.func) == "Sequential":
        layers = node.args
    elif isinstance(node, ast.List):
        layers = node.elts
    for layer, behind in pairwise(layers):
        if (
            isinstance(layer, ast.Call)
            and isinstance(behind, ast.Call)
            and _normalizes(layer, behind)
        ):
            yield layer


def _in_a_class(module: ast.ClassDef) -> Iterator[ast.Call]:
    """Convolutions kept in attributes that are read once, as what a norm's call is given."""
    made = {
        target.attr: each.value
        for each in nodes_in(module, ast.Assign)
        if (target := _own(each.targets[0]))
    }
    reads = Counter(
        node.attr
        for node in nodes_in(module, ast.Attribute)
        if _own(node) and isinstance(node.ctx, ast.Load)
    )
    for call in nodes_in(module, ast.Call):
        outer, inner = _called(call), _called(call.args[0]) if len(call.args) == 1 else ""
        norm, layer = made.get(outer), made.get(inner)
        if (
            isinstance(norm, ast.Call)
            and isinstance(layer, ast.Call)
            and _normalizes(layer, norm)
            and reads[inner] == 1
        ):
            yield layer


def _own(node: ast.AST) -> ast.Attribute | None:
    """The node if it is ``self.name``."""
    own = (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )
    return node if own else None  # type: ignore[return-value]


def _called(node: ast.AST) -> str:
    """``conv`` of ``self.conv(...)``; empty for anything else."""
    own = _own(node.func) if isinstance(node, ast.Call) else None
    return own.attr if own is not None else ""


def _normalizes(layer: ast.Call, behind: ast.Call) -> bool:
    wanted = CONVOLUTIONS.get(name_of(layer.func))
    return wanted is not None and name_of(behind.func) in (wanted, "SyncBatchNorm")


def _has_bias(call: ast.Call) -> bool:
    """True if the call leaves the bias on by its keywords, all of which are to be seen."""
    given = {item.arg: item.value for item in call.keywords}
    if (
        None in given
        or len(call.args) > BIAS_POSITION
        or any(isinstance(each, ast.Starred) for each in call.args)
    ):
        return False
    bias = given.get("bias")
    return bias is None or (isinstance(bias, ast.Constant) and bias.value is True)


# -- cfg002 bias before norm -----------------------------------------------------------------------

LESS = "a parameter less: other random numbers at the start, and checkpoints without it"


@dataclass(frozen=True)
class BiasBeforeBatchNorm(Rule):
    """A convolution adds a bias that the batch norm behind it takes away again."""

    code = "CFG002"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.01, "Share of kernel time for adding such biases from which it is a warning."
    )

    def detect(self, structure: Structure, source: Source) -> Iterator[Finding]:
        if not structure.convolutions:
            return
        if not structure.shapes:
            raise NotLooked(
                "the trace holds no shapes of convolutions: record it with record_shapes=True"
            )
        if not structure.biased:
            return
        loud = structure.marked and structure.bias_share >= self.share
        each = structure.biased / structure.steps
        yield Finding(
            structure.biased_at.site,
            f"{amounts.digits(each)} convolution{'s' * (each > 1)} "
            f"{'per step' if structure.marked else 'in the trace'}{structure.biased_at} add a bias "
            "that a batch "
            f"norm takes away: {amounts.percent(structure.bias_share)} of the kernel time",
            steps=structure.steps if structure.marked else 0,
            per_step=each if structure.marked else 0.0,
            lost_us_per_step=structure.bias_us / structure.steps if loud else None,
            basis="estimated" if loud else "none",
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=(("convolutions in the trace", f"{structure.convolutions}"),),
            remedy=Remedy(
                "Make these convolutions with bias=False (a checkpoint then lacks their biases: "
                "load it with strict=False).",
                tuple(
                    Edit(site, "set_keyword", call, "bias", "False", reason=LESS, span=span)
                    for site, call, span in biased_before_norm(source)
                ),
            ),
        )
