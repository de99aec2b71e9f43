"""TRAIN007: layers that are given, or give, what nothing can be learned from."""

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.amounts import digits
from auditor.evidence.source.files import Source, the_only, unparsed
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

from ..lines import places_of
from .losses import by_line, off
from .rows import LayerRow

REMEDIES = {
    "input": "Scale the inputs to mean 0 and standard deviation 1, column by column (images: divide "
    "by 255, or torchvision's Normalize), or start with a normalization layer.",
    "dead": "Lower the learning rate or warm it up, check the scale of the layer's "
    "inputs and its bias, or use an activation with a slope below 0 (leaky_relu, gelu).",
    "saturated": "Bring the activation's input to unit scale: smaller initial weights, no "
    "large factor or bias before it, or a normalization layer.",
    "zero": "Start one of the two at random. The last layer at zero alone already leaves the output "
    "as it was at the start.",
}


MOST = 1000
"""Largest multiple that is printed; larger ones are "more than"."""


@dataclass(frozen=True)
class LayerCannotLearn(Rule):
    """A layer cannot learn: its inputs are badly scaled, or its units are dead or saturated."""

    code = "TRAIN007"
    severity = Severity.WARNING
    since = "0.2"

    given: float = knob(50.0, "Report inputs of at least this root mean square (unit scale is 1).")
    made: float = knob(20.0, "Report it only if the output's root mean square is at least this.")
    factor: float = knob(
        10.0,
        "Warn only if the same change of the parameters moves the model's outputs this many times "
        "as far, or as little, as with normalized inputs; otherwise report a note.",
    )
    alike: float = knob(1.1, "Report nothing below this factor: a later layer restores the scale.")
    dead: float = knob(
        0.8, "Report if at least this share of units is never active (half: inputs hardly vary)."
    )
    fewest_units: int = knob(16, "Report layers with fewer units only if all are inactive.")
    fewest_steps: int = knob(8, "Report only after this many backward passes without a gradient.")
    fewest: int = knob(64, "Report only units and gates with at least this many results.")
    edge: float = knob(1e-3, "Count results of sigmoid or tanh this close to an end as saturated.")

    def detect(self, layers: Rows[LayerRow], source: Source) -> Iterator[Finding]:
        wrong = [row for row in layers if self._is_wrong(row)]
        kinds = {row.kind for row in wrong}
        zero = {name for row in wrong if row.kind == "zero" for name in row.layer.split(" and ")}
        for site, rows in by_line(
            row for row in wrong if row.kind != "dead" or row.layer not in zero
        ):
            row = max(rows, key=lambda row: (row.ratio is not None, row.given, row.dead))
            if row.kind in ("dead", "saturated") and "input" in kinds:
                continue  # units die and gates saturate of it
            measured = row.ratio is not None and off(row.ratio) >= self.factor
            made = _made_zero(source) if row.kind == "zero" else None
            yield Finding(
                made or site,
                _message(row, measured=measured),
                steps=max(row.steps, len({each.step for each in rows})),
                per_step=1.0,
                severity=None if measured or row.kind != "input" else Severity.NOTE,
                places=places_of(made or site, site),
                remedy=Remedy(REMEDIES[row.kind]),
            )

    def _is_wrong(self, row: LayerRow) -> bool:
        if row.kind == "input":
            scaled = row.ratio is not None and off(row.ratio) < self.alike
            return row.given >= self.given and row.made >= self.made and not scaled
        if row.kind == "zero":
            return row.steps >= self.fewest_steps
        if row.samples < self.fewest:
            return False
        if row.kind == "saturated":
            return row.edge <= self.edge
        share = self.dead if row.units >= self.fewest_units else 1.0
        return row.steps >= self.fewest_steps and row.dead >= share * row.units


def _made_zero(source: Source) -> Site | None:
    """The only line that sets something other than a bias to zero."""
    return the_only(
        source.site_of(file, call)
        for file, call in source.calls_of("zeros_")
        if "bias" not in unparsed(call)
    )


def _message(row: LayerRow, *, measured: bool) -> str:
    layer = row.layer or "a layer"
    if row.kind == "zero":
        return (
            f"{row.layer or 'two parameters'} are both zero, and the gradient of each is a multiple of the other: neither got "
            f"one in {row.steps} backward passes, and none ever will"
        )
    if row.kind == "dead":
        return (
            f"{row.dead} of {row.units} units after {layer} are never active and got no gradient "
            f"in {row.steps} backward passes"
        )
    if row.kind == "saturated":
        return (
            f"95% of the results of {layer} lie within {row.edge:.1g} of its ends, where it has no "
            "slope, so that hardly any gradient passes"
        )
    given, least, most, made = map(digits, (row.given, row.least, row.most, row.made))
    return (
        f"{layer} gets inputs of {given} (root mean square; columns from {least} to {most}) and "
        f"returns {made}{_moved(row.ratio) if measured and row.ratio is not None else ''}"
    )


def _moved(ratio: float) -> str:
    times = digits(off(ratio)) if off(ratio) <= MOST else f"more than {MOST:,}"
    way = "as far as" if ratio > 1 else "less than"
    return (
        f"; the same change of the parameters moves the model's outputs {times} times {way} with "
        "normalized inputs"
    )
