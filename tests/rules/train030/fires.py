import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

from tests.rules.programs import losses


@losses(lambda: (nn.Embedding(9, 6), nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 3)))
def tokens_sorted_in_front_of_an_embedding(table, layer, head):
    tokens, lengths = torch.randint(1, 9, (6, 5)), torch.tensor([2, 5, 1, 4, 3, 5])
    lengths, order = lengths.sort(descending=True)  # TRAIN030
    packed = pack_padded_sequence(table(tokens[order.to(tokens.device)]), lengths, batch_first=True)
    return F.cross_entropy(head(layer(packed)[1][0][-1]), torch.randint(0, 3, (6,)))
