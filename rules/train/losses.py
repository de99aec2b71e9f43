"""TRAIN: losses that compute something else than intended."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from auditor.evidence import table
from auditor.evidence.source.files import Function, Source
from auditor.evidence.table import Rows
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob
from auditor.syntax.index import nodes_in

from ..lines import places_of
from .rewriting import of_logarithm, reshaped, rewritten, without_activation
from .rows import (
    LARGEST,
    NORMS,
    RECURRENT,
    GeneratorRow,
    LayerRow,
    PaddingReadRow,
    RepairRow,
    SeedRow,
    TokenWeightsRow,
)

GradientsRow = RepairRow | TokenWeightsRow
R = TypeVar("R", RepairRow, TokenWeightsRow)
L = TypeVar("L", RepairRow, PaddingReadRow, TokenWeightsRow, LayerRow, SeedRow, GeneratorRow)

FUNCTIONAL = "torch.nn.functional."
BROADCASTING = tuple(
    FUNCTIONAL + name
    for name in "mse_loss l1_loss smooth_l1_loss huber_loss poisson_nll_loss".split()
)
TWICE = (
    *(FUNCTIONAL + name for name in ("cross_entropy", "binary_cross_entropy_with_logits")),
    *("torch.log_softmax", f"{FUNCTIONAL}log_softmax"),
)
ANGLE = (
    "Report an error if the step's gradient is this many degrees off that of the corrected loss."
)
FACTOR = "Report an error if the step's gradient is this many times longer or shorter."
CHANGES = "the loss changes, and so does training"
LEAST = "Report nothing below this many degrees if the norm is right as well."
SHARE = (
    "Treat the norm as right if it differs by less than this share of that of the corrected loss."
)


@dataclass(frozen=True)
class GradientRule(Rule):
    """Base of the rules that compare two gradients."""

    angle: float = knob(30.0, ANGLE)
    factor: float = knob(2.0, FACTOR)
    least_angle: float = knob(1.0, LEAST)
    least_share: float = knob(0.02, SHARE)

    def differs(self, rows: Sequence[GradientsRow]) -> bool:
        """Gradients differ in most of the rows."""
        return _most(
            rows,
            lambda row: row.angle >= self.least_angle or abs(row.ratio - 1.0) >= self.least_share,
        )

    def weighed(self, rows: Sequence[GradientsRow]) -> Severity | None:
        """An error where they are far apart in most of these; else the rule's own severity."""
        far = _most(rows, lambda row: row.angle > self.angle or off(row.ratio) > self.factor)
        return Severity.ERROR if far else None

    def judged(self, lines: Iterable[tuple[Site, list[R]]]) -> Iterator[tuple[list[R], R, Finding]]:
        """Rows of each line whose gradients differ, the one reported, and an empty finding."""
        for site, rows in lines:
            if self.differs(rows):
                steps, per_step = _steps(rows)
                severity = self.weighed(rows)
                finding = Finding(site, "", steps=steps, per_step=per_step, severity=severity)
                yield rows, shown(rows), finding


def told(
    finding: Finding, row: GradientsRow, said: str, *facts: tuple[str, str], **more: Any
) -> Finding:
    """The finding with a sentence, and how the gradient of the row lies."""
    message = f"{said}; {gradient_said(row)}"
    return replace(finding, message=message, facts=(*gradient_facts(row), *facts), **more)


def off(ratio: float) -> float:
    """2 of a half and of the double."""
    return max(ratio, 1.0 / ratio)


def _most(rows: Sequence[GradientsRow], says: Callable[[GradientsRow], bool]) -> bool:
    return sum(map(says, rows)) * 2 > len(rows)


def by_line(rows: Iterable[L]) -> Iterator[tuple[Site, list[L]]]:
    """Rows by their line."""
    return ((here[0].site, here) for here in table.by_line(rows))


def with_defect(rows: Iterable[RepairRow], defect: str) -> Iterator[tuple[Site, list[RepairRow]]]:
    """Rows of one kind, by the line of the loss."""
    return by_line(row for row in rows if row.defect == defect)


def shown(rows: Sequence[R]) -> R:
    """The one whose numbers are said: of parameters where there is one, in the middle."""
    best = [row for row in rows if row.over == "parameters"] or list(rows)
    return sorted(best, key=lambda row: row.angle)[(len(best) - 1) // 2]


def gradient_said(row: GradientsRow) -> str:
    """How the step's gradient lies to that of the corrected loss."""
    where = "" if row.over == "parameters" else " at the model's outputs"
    ratio = f"{row.ratio:.2g}"
    long = "with about the same norm" if ratio == "1" else f"and {ratio} times as long"
    return f"the step's gradient{where} is {_degrees(row.angle)} off what the corrected loss gives, {long}"


def gradient_facts(row: GradientsRow) -> tuple[tuple[str, str], ...]:
    """Angle and norm as facts, and the loss as it is and corrected."""
    of = "parameters" if row.over == "parameters" else "the model's outputs"
    facts = (
        ("angle to the gradient of the corrected loss", _degrees(row.angle)),
        ("norm relative to the gradient of the corrected loss", f"{row.ratio:.3g}"),
        ("gradients of", of),
    )
    if isinstance(row, TokenWeightsRow):
        return facts
    return (*facts, ("loss", f"{row.loss:.4g}"), ("loss, corrected", f"{row.repaired:.4g}"))


def _degrees(angle: float) -> str:
    return f"{angle:.0f} degrees" if angle >= 1.0 else "less than 1 degree"


def _sizes(sizes: Sequence[int]) -> str:
    return f"({', '.join(map(str, sizes))}{',' if len(sizes) == 1 else ''})"


def _steps(rows: Sequence[GradientsRow | PaddingReadRow]) -> tuple[int, float]:
    steps = len({row.step for row in rows})
    return steps, len(rows) / steps


class SilentBroadcast(GradientRule):
    """A loss compares every prediction with every target."""

    code = "TRAIN001"
    severity = Severity.WARNING
    since = "0.2"

    def detect(self, repairs: Rows[RepairRow], source: Source) -> Iterator[Finding]:
        for _, row, finding in self.judged(with_defect(repairs, "broadcast")):
            edit = _column_edit(source, row.site, row)
            every = (
                "loss meets every weight, and no sample counts more than another"
                if row.function in ("mul", "div")
                else "prediction is compared with every target"
            )
            yield told(
                finding,
                row,
                f"{row.function} broadcasts {_sizes(row.given)} from the model against "
                f"{_sizes(row.other)}, so that every {every}",
                remedy=Remedy(
                    f"Give both the shape {_sizes(row.given)} of the model's output.",
                    () if edit is None else (edit,),
                ),
            )


def _column_edit(source: Source, site: Site, row: RepairRow) -> Edit | None:
    """Where the target is the second argument, and a last dimension of 1 is all that is wrong."""
    if f"{FUNCTIONAL}{row.function}" not in BROADCASTING or not row.second:
        return None
    missing = len(row.given) - len(row.other)
    longer = max(row.given, row.other, key=len)
    if abs(missing) != 1 or longer[-1] != 1 or longer[:-1] != min(row.given, row.other, key=len):
        return None
    return rewritten(source, site, row.function, reshaped, CHANGES, index=int(missing < 0))


class ActivationAppliedTwice(GradientRule):
    """A loss gets probabilities where it needs logits, or logits where it needs probabilities."""

    code = "TRAIN002"
    severity = Severity.WARNING
    since = "0.2"

    def detect(self, repairs: Rows[RepairRow], source: Source) -> Iterator[Finding]:
        for _, row, finding in self.judged(with_defect(repairs, "activation")):
            yield told(finding, row, _fed(row), remedy=_once(source, row.site, row))


def _once(source: Source, site: Site, row: RepairRow) -> Remedy:
    made = row.site_of(row.made_at)
    edit = None
    if f"{FUNCTIONAL}{row.function}" in TWICE:
        edit = rewritten(source, site, row.function, without_activation, CHANGES)
    elif row.activation == "softmax" and made is not None and re.search(SOFTMAX, made.text):
        reason = f"{CHANGES}; other code that reads these probabilities gets logarithms"
        edit = rewritten(source, made, row.activation, of_logarithm, reason)
    text = (
        f"Give {row.function} log_softmax of the logits."
        if row.function in LOGARITHMS
        else f"Give {row.function} the logits, without {row.activation}: it applies that itself."
    )
    return Remedy(text, () if edit is None else (edit,))


SOFTMAX = r"\b(F|torch|functional)\.softmax\("
LOGARITHMS = ("nll_loss", "kl_div", "ctc_loss")


def _fed(row: RepairRow) -> str:
    if row.function not in LOGARITHMS:
        return f"{row.function} applies {row.activation} to the result of {row.activation}"
    given = f"the result of {row.activation}" if row.activation else "logits"
    return f"{row.function} expects log-probabilities and gets {given}"


PIECES = Remedy(
    "Multiply the mean of each piece by its share of the targets (loss * piece.numel() / "
    "whole.numel()), no longer by 1 / number of pieces."
)


@dataclass(frozen=True)
class MicroBatchesWeighedAlike(GradientRule):
    """Micro-batches with different numbers of tokens weigh the same in an accumulated gradient."""

    code = "TRAIN003"
    severity = Severity.WARNING
    since = "0.2"
    advice = (
        'Sum each loss (reduction="sum") and divide by the number of tokens of all micro-batches of '
        "the step, no longer by the number of micro-batches."
    )

    note_below: float = knob(5.0, "Report a note below this many degrees if the norm agrees, too.")

    def detect(self, weights: Rows[TokenWeightsRow]) -> Iterator[Finding]:
        for _, row, finding in self.judged(by_line(weights)):
            slight = row.angle < self.note_below and abs(row.ratio - 1.0) < 0.1
            parts, each = ("pieces", "target") if row.pieces else ("micro-batches", "token")
            found = told(
                finding,
                row,
                f"{len(row.tokens)} {parts} of {min(row.tokens)} to {max(row.tokens)} {each}s count "
                f"the same in the gradient: a {each} of the shortest counts "
                f"{max(row.tokens) / min(row.tokens):.2g} times as much as one of the longest",
                (f"{each}s of the {parts}", ", ".join(map(str, row.tokens[:16]))),
                remedy=PIECES if row.pieces else None,
            )
            yield replace(found, severity=Severity.NOTE) if slight else found


UNPACKED = "pad_packed_sequence"

MASKED = {
    UNPACKED: "Take the output at lengths - 1, or the last state that the layer returns.",
    **dict.fromkeys(
        (*LARGEST, "logsumexp"),
        "Fill padding with -inf first: x.masked_fill(~mask[..., None], -inf).",
    ),
    **dict.fromkeys(
        ("var", "std"), "Use only real positions: ((x - mean) ** 2 * mask).sum(1) / mask.sum(1)."
    ),
    **dict.fromkeys(
        NORMS, "Normalize only real positions, as x[mask], or each position alone (LayerNorm)."
    ),
    "mean": "Average only real positions: (x * mask).sum(1) / mask.sum(1).",
    **dict.fromkeys(
        ("adaptive_avg_pool1d", "avg_pool1d"),
        "Average only real positions: (x * mask).sum(-1) / mask.sum(-1).",
    ),
    "backward": "Pack the sequences: pack_padded_sequence with their lengths.",
    "flipped": "Flip each row within its own length, or pack the sequences of a bidirectional layer.",
    "sum": "Sum only real positions: multiply by the mask right before the sum.",
    "tokens": "Average only real positions: x[mask].mean().",
    "embedding": "Count positions from the first real token: (mask.cumsum(1) - 1).clamp(min=0).",
    **dict.fromkeys(
        RECURRENT,
        "Pack the sequences (pack_padded_sequence with their lengths), or take the output at "
        "lengths - 1.",
    ),
}
"""What to do, by the function; else it is attention."""

PROOFS = {
    UNPACKED: "the lengths that it gives beside it",
    **dict.fromkeys(NORMS, "its input holds the positions of padding"),
}

DIRECTIONS = {
    "backward": "the backward direction of {}",
    "flipped": "{} reads the batch flipped as a whole, and",
}
"""What comes to the padding first, by the first word of the function."""

MASK = (
    "Give attention a mask of the padding: attn_mask, key_padding_mask (a decoder's attention to a "
    "padded source: memory_key_padding_mask), or -inf before the softmax."
)


@dataclass(frozen=True)
class PaddingTrained(GradientRule):
    """Padding is trained: it counts among the targets, or attention, a mean or a last state reads it."""

    code = "TRAIN004"
    severity = Severity.WARNING
    since = "0.2"

    least_read: float = knob(0.01, "Report only if at least this share of what is read is padding.")

    def detect(
        self, repairs: Rows[RepairRow], padding_reads: Rows[PaddingReadRow]
    ) -> Iterator[Finding]:
        for site, calls in by_line(padding_reads):
            if read := self._padding_finding(site, calls):
                yield read
        for rows, row, finding in self.judged(with_defect(repairs, "padding")):
            yield told(
                finding,
                row,
                f"{row.padded} of {row.targets} {_counted(row)} of {row.function} are padding, "
                f"according to {row.by}, and count like the others",
                ("share of padding", f"{row.padded / row.targets:.0%}"),
                remedy=_ignored(row.site, row.function, {each.value for each in rows}),
            )

    def _padding_finding(self, site: Site, rows: list[PaddingReadRow]) -> Finding | None:
        worst = max(rows, key=lambda row: row.share).function
        direction = worst.partition(" ")[0]
        rows = sorted((row for row in rows if row.function == worst), key=lambda row: row.share)
        row = rows[-1 if worst in LARGEST else (len(rows) - 1) // 2]  # which are largest changes
        if row.share < self.least_read:
            return None
        steps, per_step = _steps(rows)
        said = f"{row.padded} of all {row.tokens} tokens are (according to {row.by})"
        if direction in DIRECTIONS:
            message = (
                f"{DIRECTIONS[direction].format(worst.partition(' ')[2])} comes to the padding of a row "
                f"before its text: in one row of the batch {row.share:.0%} of the gradient of its "
                f"outputs at real positions lies on padding, as {said}"
            )
        elif worst in RECURRENT:
            message = (
                f"the last state of {worst} has read the padding after the sequence: in one row of the "
                f"batch {row.share:.0%} of its gradient lies on padding, as {said}"
            )
        elif worst == UNPACKED:
            message = (
                f"the last position of what {UNPACKED} gives is padding in each row that is shorter "
                f"than the longest: {row.padded} of all {row.tokens} positions are"
            )
        elif worst == "embedding":
            message = (
                "positions are counted from the padding in front of a row: the position of a token "
                f"depends on how long the others in its batch are, as {said}"
            )
        elif worst == "tokens":
            message = f"a part of the loss is a mean over all positions: {said}, and count like the others"
        elif worst in NORMS:
            message = (
                f"the statistics of {worst} count padding: real positions are normalized by how much "
                f"of it their batch has, as {said}"
            )
        elif row.zero:
            message = (
                f"{worst} divides by all positions, although padding is zero there: one row of the batch "
                f"is scaled by {1 - row.share:.0%}, so that its result depends on how long the "
                f"others are, as {said}"
            )
        else:
            what = (
                "what it picks"
                if worst in LARGEST
                else "what it sums"
                if worst in MASKED
                else "what the text attends to"
            )
            message = (
                f"no mask keeps padding out of {worst}: in one row of the batch {row.share:.0%} of "
                f"{what} is padding, as {said}"
            )
        return Finding(
            site,
            message,
            steps=steps,
            per_step=per_step,
            severity=Severity.NOTE
            # most models of padded sequences normalize like that
            if row.zero or worst in LARGEST | NORMS or direction in DIRECTIONS
            else None,
            facts=(
                ("share on padding", f"{row.share:.0%}"),
                ("share of padding", f"{row.padded / row.tokens:.0%}"),
                ("proof", PROOFS.get(worst, "the gradient at its input is not zero at padding")),
            ),
            remedy=Remedy(MASKED.get(direction, MASK)),
        )


def _counted(row: RepairRow) -> str:
    if row.function != "ctc_loss":
        return "targets"
    return "frames" if row.value is None else "labels"


def _ignored(site: Site, function: str, values: set[int | None]) -> Remedy:
    """``values``: targets only of padding; one batch's padding may be another's target."""
    if function == "ctc_loss":
        name = "input_lengths" if None in values else "target_lengths"
        return Remedy(f"Pass the real length of each row as {name}, not that of the longest.")
    if function not in LOGARITHMS and function != "cross_entropy":
        return Remedy("Compare only the positions that the mask or the lengths call real.")
    if None in values:
        return Remedy("Set padded targets to -100: real targets have their value, too.")
    text = "Set padded targets to -100, or pass their value as ignore_index."
    value = values.pop() if len(values) == 1 else None
    if value is None or f"{function}(" not in site.text:
        return Remedy(text)
    edit = Edit(
        site,
        "set_keyword",
        call=function,
        keyword="ignore_index",
        value=str(value),
        reason="padding no longer counts, so training changes",
    )
    return Remedy(text, (edit,))


class TargetsNotShifted(GradientRule):
    """A causal language model is trained on its own inputs, or on the tokens after the next."""

    code = "TRAIN005"
    severity = Severity.WARNING
    since = "0.2"

    def detect(self, repairs: Rows[RepairRow], source: Source) -> Iterator[Finding]:
        for _, row, finding in self.judged(with_defect(repairs, "shift")):
            shift = _shift(source, row.site) if row.distance else None
            if shift is not None:
                places = places_of(shift, row.site)
                finding = replace(finding, site=shift, places=places)  # noqa: PLW2901
            asked = (
                "shifted twice: each position is trained on the token after the next"
                if row.distance
                else "not shifted: each position is trained on the token it was given"
            )
            yield told(
                finding,
                row,
                f"the targets of {row.function} are {asked}",
                ("targets compared with the inputs", str(row.targets)),
                remedy=Remedy(
                    "Shift once: in the batch or in the loss, not in both."
                    if row.distance
                    else "Compare the outputs at [:, :-1] with the tokens at [:, 1:]."
                ),
            )


def _shift(source: Source, site: Site) -> Site | None:
    """Where the targets are cut: a line in front of the loss, or the only call of its function."""
    function = source.index(site.file).scope_at(site.line)
    calls = list(source.calls_of(function.name)) if isinstance(function, Function) else []
    cutting = [source.site_of(*each) for each in calls if _cuts_first(each[1])]
    only = cutting[0] if len(calls) == len(cutting) == 1 else None
    return source.assigned_before(site, _cuts_first) or only


def _cuts_first(node: ast.stmt | ast.expr) -> bool:
    """``labels[:, 1:]``: the first position is left out."""
    slices = nodes_in(getattr(node, "value", None) or node, ast.Slice)
    return any(isinstance(each.lower, ast.Constant) and each.lower.value == 1 for each in slices)
