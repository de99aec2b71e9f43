import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from tests.rules.programs import losses


def heads_viewed_in_a_model():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.mixed = nn.Linear(8, 24)

        def forward(self, x):
            rows, positions, size = x.shape
            query, key, value = self.mixed(x).view(rows, positions, 3, 2, 4).unbind(2)
            query = query + 0.0
            query = query.reshape(rows, 2, positions, 4)  # TRAIN021
            key, value = key.transpose(1, 2), value.transpose(1, 2)
            return torch.softmax(query @ key.mT, -1) @ value

    model = Attention()
    return lambda: model(torch.randn(4, 10, 8)).square().mean().backward()


def last_states_of_two_directions():
    embed, layer = nn.Embedding(9, 8), nn.LSTM(8, 6, batch_first=True, bidirectional=True)
    head = nn.Linear(12, 1)

    def step():
        packed = pack_padded_sequence(
            embed(torch.randint(0, 9, (4, 7))),
            torch.tensor([3, 7, 2, 5]),
            batch_first=True,
            enforce_sorted=False,
        )
        _, (state, _) = layer(packed)
        head(state.reshape(4, -1)).square().mean().backward()  # TRAIN021

    return step


@losses(lambda: (nn.LSTM(8, 6, 2, batch_first=True, bidirectional=True), nn.Linear(12, 1)))
def last_states_of_the_last_of_two_layers(layer, head):
    _, (state, _) = layer(torch.randn(4, 7, 8))
    top = state[-2:]
    return head(top.reshape(4, -1)).square().mean()  # TRAIN021


@losses(lambda: (nn.GRU(8, 6, 2, batch_first=True, bidirectional=True), nn.Linear(12, 1)))
def last_states_by_layer_and_direction(layer, head):
    _, state = layer(torch.randn(4, 7, 8))
    top = state.view(2, 2, 4, 6)[-1]
    return head(top.reshape(4, -1)).square().mean()  # TRAIN021
