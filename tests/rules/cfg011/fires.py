import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.functional import dropout

from tests.rules.programs import trained_once


def _evaluated(model, size=(4, 8)):
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        model.train()
        trained_once(model, optimizer, torch.ones(size))
        model.eval()
        with torch.inference_mode():
            model(torch.ones(size))

    return step


def attention_with_a_constant():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(8, 24)

        def forward(self, x):
            q, k, v = self.qkv(x).chunk(3, -1)
            return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)  # CFG011

    return _evaluated(nn.Sequential(nn.Linear(8, 8), Attention()), (2, 4, 8))


def a_layer_made_in_forward():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(8, 8)

        def forward(self, x):
            return nn.Dropout(0.5)(self.one(x))  # CFG011

    return _evaluated(Net())


def a_function_under_an_imported_name():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(8, 8)

        def forward(self, x):
            return dropout(self.one(x), p=0.1)  # CFG011

    return _evaluated(Net())
