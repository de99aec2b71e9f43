"""Losses of the step computed again with one thing repaired, and the effect on the gradient."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS, Backward, Walk
from auditor.capture.instruments.dispatch_modes import leave_function, run_compiled_code_eagerly
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe

from ..rows import RECURRENT, DependenceRow, PaddingReadRow, RepairRow, TokenWeightsRow
from . import (
    activations,
    bootstraps,
    broadcasts,
    contrasts,
    dependence,
    drawn,
    ends,
    leaks,
    no_effect,
    padded_texts,
    padding_reads,
    paddings,
    ratios,
    readouts,
    series,
    sorted_rows,
    time_first,
    voids,
)
from .function_tape import FunctionTape, TapedCall, TapeRequest
from .second_gradient import Change, NotRepeated, Tail, compare, tail_of
from .shifts import Shifts
from .token_weights import ONE_BY_ONE, Sums, mean_of, sum_of, weights_of

ROWS = 8
"""Losses of one line that are compared in a step."""

ANYWHERE = frozenset({"future", "documents", "cancelled"})
"""Kinds that begin at any function, also at one that is not placed: its line is enough."""

THOROUGH = 1
"""Steps in which parameters' gradients are compared, by two more backwards; else outputs'."""


class LossRepairsProbe(OptimizerProbe):
    """Writes ``repairs``, ``padding_reads``, ``dependence`` and ``token_weights``.

    The functions that the step calls are kept until its backward begins, and looked at then: the
    graph is still whole. What is computed again leaves nothing behind, and where it does not come
    to the program's own loss, nothing is written.
    """

    name = "loss_repairs"
    parts = ("repairs", "padding_reads", "dependence", "token_weights")
    passes = frozenset({"gradients"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches(self.missed)
        self._tape: FunctionTape | None = None
        self._sums = Sums()
        self._seen: Counter[tuple[str, int]] = Counter()
        self._shifts = Shifts()
        self._samples = drawn.Samples(context)
        self._packs = False
        self._looked = 0
        """The newest call of the tape at the last backward: of those before it all is said."""

    def start(self) -> None:
        """Enter the tape in the calling thread, and watch the door."""
        self.stop()
        for part in self.parts:
            self.context.writer.touch(part)
        try:
            self._watch()
        except BaseException:
            self.stop()
            raise

    def _watch(self) -> None:
        run_compiled_code_eagerly(self._patches)
        self._samples.watch(self._patches)
        self._patches.around(
            torch.autograd.graph.saved_tensors_hooks, "__enter__", after=self._hooks_entered
        )
        tape = FunctionTape(
            self.context,
            TapeRequest(self._is_placed, self._is_spotted, self._noted),
            self.missed,
        )
        tape.__enter__()  # type: ignore[no-untyped-call]  # torch's own, without annotations
        self._patches.on_undo(lambda: leave_function(tape))
        self._tape = tape
        BACKWARD_HOOKS.add(self)

    def stop(self) -> None:
        BACKWARD_HOOKS.remove(self)
        self._patches.undo()
        self._tape = None
        self._samples.clear()
        self._sums.clear()

    def step_end(self) -> None:
        self._seen.clear()
        self._packs = False
        self._samples.clear()
        if self._tape is not None:
            self._tape.clear()

    def _hooks_entered(self, _: Any, hooks: Any) -> None:
        self._packs = True

    def _noted(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        compares = name in paddings.NAMES or name in paddings.COMPARING
        noted = compares or name in activations.NAMES or name in padding_reads.READING
        return paddings.beside(self.context) if noted else None

    def _is_placed(self, name: str, given: tuple[torch.Tensor, ...]) -> bool:
        tape = self._tape
        if tape is not None and given and name in ("getitem", "narrow"):
            made = tape.maker(given[0])
            picks = made is not None and made.name in RECURRENT  # a state
            if picks or padding_reads.unpacked(tape, made) is not None:
                return True
            cuts = dependence.crops_convolution(tape, name, given)
            forms = dependence.forms_a_mask(tape, name, given)
            return cuts or forms or ratios.may_be_old(name, given)
        return (
            name in PLACED
            or bootstraps.adds_data(name, given)
            or no_effect.weighs_a_scalar(name, given)
            or no_effect.adds_a_shift(name, given)
            or leaks.compares_values(name, given)
            or ratios.may_be_old(name, given)
            or voids.makes_targets(name, given)
            or (name == "grad" and len(given) > 1)  # of torch.autograd, no attribute
            or (tape is not None and dependence.forms_a_mask(tape, name, given))
            or paddings.may_be_padded(name, given)
            or broadcasts.may_broadcast(name, given)
        )

    def _is_spotted(self, name: str) -> bool:
        return self.context.step < THOROUGH or name in broadcasts.MADE_FOR_IT

    def backward_begins(self, call: Backward) -> None:
        """Look at the loss while its graph is whole."""
        tape = self._tape
        if tape is None or not self.context.in_step:
            return
        tape.paused = True
        if call.nested:
            return
        if call.create_graph or len(call.tensors) != 1:
            self._sums.broken = True
            return
        (loss,) = call.tensors
        try:
            self._look(tape, loss, call)
        finally:
            self._looked = next(reversed(tape.calls), self._looked)
            if not call.keep_graph:
                tape.forget(call.walked)
                self._samples.clear()

    def backward_ends(self, call: Backward) -> None:
        """See what it added to the gradients."""
        if self._tape is None or call.nested:
            return
        self._tape.paused = False
        if call.failed or call.inputs:
            self._sums.broken = True
        else:
            self._sums.ends()

    def before_optimizer(self, optimizer: Optimizer) -> None:
        sums = self._sums
        if self._tape is None:
            return
        if sums.unequal:
            last = sums.means[-1]
            try:
                angle, ratio = sums.compared()
            except NotRepeated:
                angle = ratio = 0.0
            if ratio:
                self.context.add(
                    TokenWeightsRow(
                        at=last.at,
                        angle=angle,
                        ratio=ratio,
                        over="parameters",
                        tokens=[mean.tokens for mean in sums.means],
                        function=last.function,
                        pieces=sums.cut,
                    )
                )
        sums.clear()

    # -- one loss ----------------------------------------------------------------------------------

    def _look(self, tape: FunctionTape, loss: torch.Tensor, call: Backward) -> None:
        alone = not call.inputs and not _has_peers()
        if alone:
            leaves = [leaf.variable for leaf in call.walked.leaves]
            self._sums.begins(mean_of(tape, loss), leaves, kept=call.keep_graph)
        self._look_at_padding(tape)
        in_calls = dependence.reshaped, dependence.added_masks, no_effect.without_effect
        for found in (each for look in in_calls for each in look(tape)):
            if found.call.number > self._looked:
                self._depends(found)
        tail = tail_of(tape, loss) if loss.numel() == 1 else None
        if tail is None:
            return
        for found in (*_in_loss(tape, tail), *drawn.constant_derivatives(tape, loss)):
            self._depends(found)
        for drawn_row in self._samples.without_gradient(tape, loss):
            self.context.add(drawn_row)
        plain = not (tape.hooked or self._packs) and alone
        if alone and self.context.step < THOROUGH and not self._seen["samples", 0]:
            self._depends(
                dependence.mixed_samples(tape, tail)
                or time_first.mixed_behind_time(tape, tail, call.walked if plain else None)
            )
            statistics = dependence.batch_statistics(tape, tail) or dependence.scaled_back(tape)
            self._depends(statistics)
            self._depends(series.future_values(tape, tail))
            self._depends(leaks.scaled_by_targets(tape, tail))
            with suppress(RuntimeError):  # of lstsq
                self._depends(leaks.channel_ahead(tape, tail))
            with suppress(RuntimeError):  # a graph that may be walked once
                both = ratios.cancelled(tape, tail, call.walked if plain else None)
                self._depends(next(both, None))
        for changes, row in self._suspects(tape, tail, call.walked if plain else None):
            number = self._seen[row.defect, row.at]
            if number >= ROWS:
                continue
            self._seen[row.defect, row.at] += 1
            thorough = plain and self.context.step < THOROUGH and number == 0
            self._compare(tail, changes, row, call if thorough else None)
        self._weigh(tape, tail, call.walked if plain and self.context.step < THOROUGH else None)
        for shifted in self._shifts.next_token:
            told = self._seen["future", 0] or self._seen["added", 0]
            if self.context.step < THOROUGH and not told:
                with suppress(RuntimeError):  # a graph that may be walked once
                    self._depends(dependence.future_of(tape, shifted))
                    self._depends(dependence.documents_of(tape, shifted))

    def _depends(self, found: dependence.Dependence | None) -> None:
        """Samples and the future are told once in a step: what comes behind depends on the same."""
        at = None if found is None else self._place(found)
        if found is not None and at is not None:
            self._seen[found.kind, 0] += 1
            row = DependenceRow(
                at=at, kind=found.kind, function=found.call.name, n=found.n, of=found.of
            )
            self.context.add(row)

    def _place(self, found: dependence.Dependence) -> int | None:
        call = found.call
        if call.at is not None or call.spot is None or found.kind not in ANYWHERE:
            return call.at
        code, line = call.spot
        return self.context.frames.site(code.co_filename, line, code.co_qualname)

    def _look_at_padding(self, tape: FunctionTape) -> None:
        for found in padding_reads.padding_reads(tape):
            if found.call.number <= self._looked:
                continue
            padding = found.tokens.is_padding
            row = PaddingReadRow(
                at=found.call.at or 0,
                function=found.call.name,
                share=found.share,
                padded=int(padding.sum()),
                tokens=padding.numel(),
                by=found.tokens.by,
                zero=found.zero,
            )
            self.context.add(row)

    def _compare(
        self, tail: Tail, changes: dict[int, Change], row: RepairRow, call: Backward | None
    ) -> None:
        try:
            both = compare(tail, changes, None if call is None else call.walked)
        except (NotRepeated, RuntimeError, ValueError, TypeError, IndexError):
            return  # a repair that the rest of the loss cannot take
        row.angle, row.ratio, row.over = both.angle, both.ratio, both.over
        row.loss, row.repaired = both.loss, both.repaired
        self.context.add(row)

    def _weigh(self, tape: FunctionTape, tail: Tail, walked: Walk | None) -> None:
        """Compare pieces of one tensor that a loss weighs alike with pieces weighed by length."""
        means = sum_of(tape, tail.loss)
        try:
            both = compare(tail, weights_of(means), walked) if means else None
        except (NotRepeated, RuntimeError):
            return
        if both is not None:
            row = TokenWeightsRow(
                at=means[0].at,
                angle=both.angle,
                ratio=both.ratio,
                over=both.over,
                tokens=[mean.tokens for mean in means],
                function=means[0].function,
                pieces=True,
            )
            self.context.add(row)

    def _suspects(
        self, tape: FunctionTape, tail: Tail, walked: Walk | None
    ) -> Iterator[tuple[dict[int, Change], RepairRow]]:
        for shifted in self._shifts.of(tape, tail, walked):
            row = _row(shifted.call, "shift")
            row.distance, row.targets = shifted.distance, shifted.targets
            yield {shifted.call.number: shifted.change}, row
        compared, spread = {}, []
        for call in tail.calls:
            if call.at is None or not call.gives_gradient:
                continue
            found = broadcasts.broadcast_in(tail, call, tape.calls.values())
            if found is not None:
                spread.append(found)
            fed = activations.misfed(tape, call)
            if fed is not None:
                row = _row(call, "activation")
                if fed.activation is not None:
                    row.activation, row.made_at = fed.activation.name, fed.activation.at
                yield {call.number: fed.change}, row
            padded = paddings.padding_of(tape, call) or padded_texts.counted_by_ctc(tape, call)
            if padded is not None:
                yield {call.number: padded.change}, _padding_row(call, padded)
            padded = paddings.compared_padding(tail, call)
            if padded is not None:
                compared[call.number] = call, padded
        # what is spread in one place meets what is spread in another
        apart = broadcasts.without_broadcasts(tail, spread)
        for found in spread:
            one, two = (each for each, _ in found.call.parents[:2])
            row = _row(found.call, "broadcast")
            row.second = found.constant is two
            row.given = list((one if row.second else two).shape)
            row.other = list(found.constant.shape)
            yield apart, row
        # the sum of two differences needs both in the same form
        changes = {number: padded.change for number, (_, padded) in compared.items()}
        wrong = [pair for pair in compared.values() if pair[1].padded]
        if wrong:
            yield changes, _padding_row(*wrong[0])


def _in_loss(tape: FunctionTape, tail: Tail) -> Iterator[dependence.Dependence]:
    """What depends on what it must not between the model's outputs and the loss."""
    for call in tail.calls:
        yield from ends.ends_ignored(tape, call)
        yield from ends.prompts_trained(tape, call)
    yield from sorted_rows.left_sorted(tape, tail)
    yield from ratios.of_other_actions(tape, tail)
    yield from readouts.normalized_together(tape, tail)
    yield from readouts.neighbors_of_others(tape)
    yield from contrasts.own_candidates(tape, tail)
    yield from voids.trained_voids(tape, tail)
    for kind, made in bootstraps.trained_targets(tape, tail):
        yield dependence.Dependence(kind, made, 0, 0)


def _row(call: TapedCall, defect: str) -> RepairRow:
    return RepairRow(
        at=call.at or 0,
        angle=0.0,
        ratio=0.0,
        over="",
        defect=defect,
        function=call.name,
        loss=0.0,
        repaired=0.0,
    )


def _padding_row(call: TapedCall, padded: paddings.Padded) -> RepairRow:
    row = _row(call, "padding")
    row.padded, row.targets = padded.padded, padded.targets
    row.value, row.by = padded.value, padded.by
    return row


PLACED = (
    activations.NAMES
    | activations.ACTIVATIONS
    | padding_reads.READING
    | dependence.MIXING
    | dependence.ATTENDING
    | dependence.FORMS
    | dependence.MASKING
    | dependence.COMBINING
    | dependence.STATISTICS
    | no_effect.NORMS
    | (no_effect.MEANS - dependence.COMPARED)
    | ONE_BY_ONE
    | frozenset(
        """
        div embedding sort argsort topk logsumexp binary_cross_entropy binary_cross_entropy_with_logits mm
        cosine_similarity normal
        """.split()
    )
)


def _has_peers() -> bool:
    """Other ranks take part in the backward: a second one would wait for them."""
    distributed = torch.distributed
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )
