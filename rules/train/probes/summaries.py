"""Numbers made of all positions of a text or series: statistics of what is read at each position
too, and codes of the whole, as an autoencoder's, which may know all of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from .function_tape import FunctionTape, TapedCall

STATISTICS = frozenset(
    """
    mean sum std var std_mean var_mean norm vector_norm median logsumexp avg_pool1d
    adaptive_avg_pool1d
    """.split()
)
"""Functions that make one number of all positions."""

EXTREMES = frozenset("amax amin max min max_pool1d adaptive_max_pool1d".split())

SCALING = frozenset("sub div clamp round floor".split())
"""Functions by which an extreme keeps numbers in a range, which cancels later."""

LEARNED = frozenset(
    """
    linear embedding lstm gru rnn_tanh rnn_relu conv1d conv2d multi_head_attention_forward matmul bmm
    einsum scaled_dot_product_attention
    """.split()
)
"""Functions that make a code of what they are given: it is not the same numbers any more."""

KEEPING = frozenset("pad cat conv1d unfold getitem view reshape unflatten flatten".split())
"""Functions that keep positions, in another number or form."""

STATES = frozenset("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell".split())

DRAWS = ("rand", "normal", "bernoulli", "multinomial", "gumbel")
"""Parts of names of functions that draw."""


class Summaries:
    """The statistics over positions among the calls that lead to an output.

    :meth:`take` is given each call in its order, and the tensors of the text that it was given.
    """

    def __init__(self, tape: FunctionTape, output: torch.Tensor, lengths: set[int]) -> None:
        self._tape = tape
        self._lengths = frozenset(lengths)
        """Sizes of a dimension of positions."""
        self._kept = self._position_by_position(output)
        self._known = set[int]()
        self.numbers = set[int]()
        """Of the statistics."""

    def _position_by_position(self, output: torch.Tensor) -> frozenset[int]:
        """The calls from which a way leads to an output on which positions are never lost."""
        kept, waiting = set[int](), [self._tape.maker(output)]
        while waiting:
            call = waiting.pop()
            if call is not None and call.number not in kept and self._keeps(call):
                kept.add(call.number)
                makers = (number for _, number in call.parents if number is not None)
                waiting += map(self._tape.calls.get, makers)
        return frozenset(kept)

    def _keeps(self, call: TapedCall) -> bool:
        return call.name in KEEPING or not self._lengths.isdisjoint(call.result.shape)

    def take(self, call: TapedCall, without: list[torch.Tensor], given: list[torch.Tensor]) -> bool:
        """False if what a call is ``given`` ``without`` positions, or makes of them, is a code."""
        if not all(id(each) in self._known for each in without):
            return False
        if without and (call.name in STATES or any(part in call.name for part in DRAWS)):
            return False
        if len(without) < len(given) and self._meets_its_own(call):
            self.numbers.add(call.number)
        elif not without or len(without) < len(given):
            return True
        self._known.update(map(id, call.results))
        return True

    def _meets_its_own(self, call: TapedCall) -> bool:
        """A statistic over positions whose numbers go on position by position as well."""
        of_rows = call.result.dim() > 0 and self._lengths.isdisjoint(call.result.shape)
        if not of_rows or call.name not in STATISTICS | EXTREMES:
            return False
        if call.name in EXTREMES and any(each.name in SCALING for each in self._tape.users(call)):
            return False
        way = {call.number}
        for tensor, maker in self._same(call):
            for user in self._tape.calls.values():
                reads = any(each is tensor for each, _ in user.parents)
                if reads and user.number in self._kept - way:
                    return True
            if maker is not None:
                way.add(maker.number)
        return False

    def _same(self, call: TapedCall) -> Iterator[tuple[torch.Tensor, TapedCall | None]]:
        """What a call is given, and what that was made of number by number, with its maker."""
        user, tensor = call, call.parents[0][0]
        while True:
            maker = self._tape.maker_before(user, tensor)
            yield tensor, maker
            if maker is None or maker.name in LEARNED:
                return
            alike = [
                each
                for each, _ in maker.parents
                if each.shape == tensor.shape and each.is_floating_point()
            ]
            if len(alike) != 1:
                return
            user, tensor = maker, alike[0]
