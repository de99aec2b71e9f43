"""Numbers made of all positions of a text or series: statistics of what is read at each position
too, and codes of the whole, as an autoencoder's, which may know all of it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

import torch

from .function_tape import FunctionTape, TapedCall

STATISTICS = frozenset("mean sum std var std_mean var_mean norm vector_norm".split())
"""Functions that make one number of all positions."""

EXTREMES = frozenset("amax amin max min".split())

SCALING = frozenset("sub div clamp round floor".split())
"""Functions by which an extreme keeps numbers in a range, which cancels later."""

LEARNED = frozenset(
    """
    linear embedding lstm gru rnn_tanh rnn_relu conv1d conv2d multi_head_attention_forward matmul bmm
    einsum scaled_dot_product_attention
    """.split()
)
"""Functions that make a code of what they are given: it is not the same numbers any more."""

LONGER = frozenset({"pad", "conv1d"})
"""Functions that keep positions, and add some."""

STATES = frozenset("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell".split())

DRAWS = ("rand", "normal", "bernoulli", "multinomial", "gumbel")
"""Parts of names of functions that draw."""


class Summaries:
    """The statistics over positions among the calls that lead to an output.

    :meth:`take` is given each call in its order, and the tensors of the text that it was given.
    """

    def __init__(self, tape: FunctionTape, leading: Container[int], positions: int) -> None:
        self._tape = tape
        self._leading = leading
        self._positions = positions
        self._known = set[int]()
        self.numbers = set[int]()
        """Of the statistics."""

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
        of_rows = call.result.dim() > 0 and self._positions not in call.result.shape
        if not of_rows or call.name not in STATISTICS | EXTREMES:
            return False
        if call.name in EXTREMES and any(each.name in SCALING for each in self._tape.users(call)):
            return False
        way = {call.number}
        for tensor, maker in self._same(call):
            for user in self._tape.calls.values():
                keeps = self._positions in user.result.shape or user.name in LONGER
                reads = any(each is tensor for each, _ in user.parents)
                if reads and keeps and user.number in self._leading and user.number not in way:
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
