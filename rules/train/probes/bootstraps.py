"""Targets made of the network's own outputs, as in temporal-difference learning, with gradients."""

from collections.abc import Iterator

import torch

from auditor.capture.instruments.autograd_graph import walk

from .function_tape import FunctionTape, TapedCall
from .second_gradient import Tail

LOSSES = frozenset({"mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"})
FORMING = frozenset(
    "view reshape squeeze unsqueeze flatten getitem to float expand transpose T mT".split()
)
"""Functions that only give a value another form."""

TEMPERATURE = FORMING | {"div", "mul", "clone"}
"""Functions between scores and their softmax."""


def adds_data(name: str, given: tuple[torch.Tensor, ...]) -> bool:
    """Whether a call adds a tensor of data and one of the graph, as ``reward + 0.99 * value``."""
    return name in ("add", "sub") and len(given) == 2 and len({*map(_learns, given)}) == 2


def trained_targets(tape: FunctionTape, tail: Tail) -> Iterator[tuple[str, TapedCall]]:
    """``target``, ``soft`` or ``advantage``, and the call that makes it."""
    target = _bootstrapped(tape, tail)
    if target is not None:
        yield "target", target
    soft = _soft(tape, tail)
    if soft is not None:
        yield "soft", soft
    advantage = _advantage(tape, tail)
    if advantage is not None:
        yield "advantage", advantage


def _advantage(tape: FunctionTape, tail: Tail) -> TapedCall | None:
    """The call that makes ``data - value``, by which a loss multiplies log-probabilities with the
    gradient on, where another part of the loss trains the value by the data.
    """
    for call in tail.calls:
        pair = [tensor for tensor, _ in call.parents]
        if call.name != "mul" or len(pair) != 2 or not all(map(_learns, pair)):
            continue
        for weight, chance in (pair, pair[::-1]):
            made = formed(tape, call, weight)
            if made is None or made.at is None or made.name != "sub":
                continue
            given = tuple(tensor for tensor, _ in made.parents)
            if not adds_data("sub", given) or not _is_log(tape, tape.maker_before(call, chance)):
                continue
            value = next(filter(_learns, given))
            compared = (each for each in tail.calls if each.name in LOSSES | {"pow", "square"})
            known = {id(value), *map(id, made.results)}
            for each in tail.calls:  # the same difference, computed once more
                if each.name == "sub" and any(tensor is value for tensor, _ in each.parents):
                    known.update(map(id, each.results))
            if not _is_log(tape, tape.maker_before(made, value)) and any(
                id(tensor) in known for each in compared for tensor, _ in each.parents
            ):
                return made
    return None


def _soft(tape: FunctionTape, tail: Tail) -> TapedCall | None:
    """The softmax that makes the target of the only ``kl_div`` with a gradient into its target: two
    of them may pull two outputs toward one another on purpose.
    """
    pulled = [
        (call, target)
        for call in tail.calls
        if call.name == "kl_div"
        and isinstance(target := call.argument(1, "target"), torch.Tensor)
        and target.requires_grad
    ]
    by_hand = [] if pulled else list(_crossed(tape, tail))
    if len(by_hand) == 1:
        return by_hand[0]
    made = formed(tape, *pulled[0]) if len(pulled) == 1 else None
    return made if made is not None and made.name in ("softmax", "log_softmax") else None


def _crossed(tape: FunctionTape, tail: Tail) -> Iterator[TapedCall]:
    """The softmax of each product with a log_softmax of another output, both with a gradient."""
    for call in tail.calls:
        pair = [tensor for tensor, _ in call.parents]
        if call.name != "mul" or len(pair) != 2 or not all(map(_learns, pair)):
            continue
        makers = [formed(tape, call, each) for each in pair]
        named = {made.name: made for made in makers if made is not None}
        target, logs = named.get("softmax"), named.get("log_softmax")
        if target is None or logs is None or target.at is None:
            continue
        scores = [tape.origin(call, call.parents[0][0], TEMPERATURE)[0] for call in (target, logs)]
        if scores[0] is not scores[1]:
            yield target


def _is_log(tape: FunctionTape, call: TapedCall | None) -> bool:
    """A log-probability is among what a call is computed from, along its gradient: a state that the
    environment gives comes after an action, which was drawn from one.
    """
    waiting, seen = [call], set[int]()
    while waiting and len(seen) < NEAR:
        each = waiting.pop()  # in depth: a stack of a rollout's steps is wide
        if each is None or each.number in seen:
            continue
        if each.name in ("log_softmax", "logsumexp", "log"):
            return True
        seen.add(each.number)
        waiting += [
            tape.maker_before(each, parent) for parent, _ in each.parents if _learns(parent)
        ]
    return False


NEAR = 48
"""Calls behind one that are looked at."""


def _bootstrapped(tape: FunctionTape, tail: Tail) -> TapedCall | None:
    """The call that makes a target ``data + factor * output`` (0 < factor <= 1) that a loss compares
    with another output of the same parameters, where the gradient goes into both; None if there is
    none. Two outputs of one call of the model say nothing: an equation may relate them.
    """
    for call in tail.calls:
        pair = [tensor for tensor, _ in call.parents]
        if len(pair) != 2 or not (call.name == "sub" or call.name in LOSSES):
            continue
        sides = ((pair[0], pair[1]), (pair[1], pair[0]))
        for target, output in sides if call.name == "sub" else sides[1:]:
            if not (_learns(target) and _learns(output)):
                continue
            made = formed(tape, call, target)
            if made is not None and made.name == "stack":
                steps = [tape.maker_before(made, each) for each, _ in made.parents]
                made = next((each for each in steps if each and _is_bootstrap(tape, each)), None)
                if made is not None and _picks_all_but_the_last(tape, call, output):
                    ends = [
                        {id(leaf.variable) for leaf in walk([each.grad_fn]).leaves} for each in pair
                    ]
                    if ends[0] & ends[1]:
                        return made
            if made is None or not _is_bootstrap(tape, made):
                continue
            one, two = _outputs(tape, tail, call, target), _outputs(tape, tail, call, output)
            leaves = [
                {id(leaf.variable) for leaf in walk(each.grad_fn for each in side.values()).leaves}
                for side in (one, two)
            ]
            if one.keys().isdisjoint(two) and leaves[0] & leaves[1]:
                return made
    return None


def _picks_all_but_the_last(tape: FunctionTape, call: TapedCall, output: torch.Tensor) -> bool:
    """``values[:-1]``, whose returns are made of ``values[1:]`` step by step."""
    made = tape.maker_before(call, output)
    return made is not None and made.name == "getitem" and made.args[1] == slice(None, -1)


def _learns(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad


def formed(tape: FunctionTape, call: TapedCall, tensor: torch.Tensor) -> TapedCall | None:
    """The call that computed what another one was given, whatever its form."""
    return tape.origin(call, tensor, FORMING)[1]


def _is_bootstrap(tape: FunctionTape, made: TapedCall) -> bool:
    given = tuple(tensor for tensor, _ in made.parents)
    if made.at is None or not adds_data(made.name, given):
        return False
    data, value = sorted(given, key=_learns)
    scaled = formed(tape, made, value)
    if data.numel() < 2 or scaled is None or scaled.name != "mul":
        return False
    factors = [each for each in scaled.args if not (torch.is_tensor(each) and _learns(each))]
    return len(factors) == 1 and _is_share(factors[0])


def _is_share(factor: object) -> bool:
    if isinstance(factor, torch.Tensor):
        return bool(((factor >= 0) & (factor <= 1)).all()) and bool((factor > 0).any())
    return isinstance(factor, int | float) and 0 < factor <= 1


def _outputs(
    tape: FunctionTape, tail: Tail, call: TapedCall, tensor: torch.Tensor
) -> dict[int, torch.Tensor]:
    """The model's outputs that a tensor was computed from, by ``id``."""
    ends = {id(each): each for each in tail.outputs}
    found: dict[int, torch.Tensor] = {}
    waiting = [(call, tensor)]
    while waiting:
        user, each = waiting.pop()
        made = tape.maker_before(user, each)
        if id(each) in ends:
            found[id(each)] = each
        elif made is not None:
            waiting += [(made, parent) for parent, _ in made.parents if _learns(parent)]
    return found
