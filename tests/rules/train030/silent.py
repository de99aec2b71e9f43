import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.rules.programs import losses

LENGTHS = (2, 5, 1, 4, 3, 5)


def _parts():
    return nn.GRU(4, 8, batch_first=True), nn.Linear(8, 3)


def _batch(lengths=LENGTHS):
    return torch.randn(6, 5, 4), torch.tensor(lengths), torch.randint(0, 3, (6,))


@losses(_parts)
def targets_sorted_as_well(layer, head):
    x, lengths, labels = _batch()
    lengths, order = lengths.sort(descending=True)
    packed = pack_padded_sequence(x[order], lengths, batch_first=True)
    return F.cross_entropy(head(layer(packed)[1][-1]), labels[order])


@losses(_parts)
def targets_sorted_by_an_order_of_python(layer, head):
    x, lengths, labels = _batch()
    lengths, order = lengths.sort(descending=True)
    packed = pack_padded_sequence(x[order], lengths, batch_first=True)
    again = torch.tensor(sorted(range(6), key=lambda row: -LENGTHS[row]))
    return F.cross_entropy(head(layer(packed)[1][-1]), labels[again])


@losses(_parts)
def put_back_by_an_inverse_that_is_filled(layer, head):
    x, lengths, labels = _batch()
    lengths, order = lengths.sort(descending=True)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    packed = pack_padded_sequence(x.index_select(0, order), lengths, batch_first=True)
    return F.cross_entropy(head(layer(packed)[1][-1].index_select(0, back)), labels)


@losses(_parts)
def put_back_into_rows_that_are_empty(layer, head):
    x, lengths, labels = _batch()
    lengths, order = lengths.sort(descending=True)
    packed = pack_padded_sequence(x[order], lengths, batch_first=True)
    state = layer(packed)[1][-1]
    rows, copied = torch.zeros_like(state), state.clone()
    rows[order] = state
    copied[order] = state
    return F.cross_entropy(head(rows), labels) + F.cross_entropy(head(copied), labels)


@losses(_parts)
def sorted_and_put_back_by_torch(layer, head):
    x, lengths, labels = _batch()
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    states, _ = pad_packed_sequence(layer(packed)[0], batch_first=True)
    return F.cross_entropy(head(states.mean(1)), labels)


@losses(_parts)
def in_order_already(layer, head):
    x, lengths, labels = _batch((5, 5, 4, 3, 2, 1))
    lengths, order = lengths.sort(descending=True, stable=True)
    packed = pack_padded_sequence(x[order], lengths, batch_first=True)
    return F.cross_entropy(head(layer(packed)[1][-1]), labels)


@losses(_parts)
def hardest_rows_first(layer, head):
    x, _, labels = _batch()
    scores = head(layer(x)[1][-1])
    hardness = F.cross_entropy(scores, labels, reduction="none")
    order = hardness.detach().argsort(descending=True)
    return F.cross_entropy(scores[order], labels[order])


@losses(_parts)
def values_ranked_within_a_row(layer, head):
    x, _, labels = _batch()
    return F.cross_entropy(head(layer(x)[1][-1]).sort(-1)[0], labels)
