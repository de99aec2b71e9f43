import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.rules.programs import optimized, trained_once


def graph_cut_some_lines_later():
    body, head = nn.Linear(8, 8), nn.Linear(8, 1)
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-3)

    def step():
        optimizer.zero_grad()
        hidden = body(torch.ones(4, 8)).relu()
        hidden = hidden.detach()  # GRAPH005
        loss = head(hidden).mean()
        loss.backward()
        optimizer.step()
        loss.detach()

    return step


def gate_that_only_picks_an_expert():
    gate, experts = nn.Linear(8, 2), nn.Linear(8, 2)
    optimizer = torch.optim.AdamW([*gate.parameters(), *experts.parameters()], lr=1e-3)

    def step():
        optimizer.zero_grad()
        x = torch.randn(4, 8)
        scores = gate(x)
        chosen = scores.softmax(-1).argmax(-1)  # GRAPH005
        experts(x).gather(1, chosen[:, None]).square().mean().backward()
        optimizer.step()

    return step


def layer_that_forward_never_calls():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.forgotten = nn.Linear(8, 1), nn.Linear(8, 1)

        def forward(self, x):
            return self.used(x)

    model, optimizer = optimized(Model())

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).mean().backward()
        optimizer.step()  # GRAPH005

    return step


def group_with_a_rate_of_zero():
    body, head = nn.Linear(8, 8), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([{"params": body.parameters(), "lr": 0.0}, {"params": head.parameters()}], lr=1e-3)

    def step():
        optimizer.zero_grad()
        head(body(torch.ones(4, 8))).mean().backward()
        optimizer.step()  # GRAPH005

    return step


def auxiliary_head_whose_output_reaches_no_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 1)
            self.side = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1))

        def forward(self, x):
            x = self.body(x)
            return self.head(x), self.side(x)  # GRAPH005

    net, optimizer = optimized(Net(), lr=0.1)

    def step():
        optimizer.zero_grad()
        scores, _ = net(torch.ones(4, 8))
        scores.square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            net.side(torch.ones(4, 8))

    return step


class _Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.low, self.high = nn.Linear(8, 2), nn.Linear(2, 8)

    def forward(self, x):
        return self.base(x) + self.high(self.low(x))


def adapters_checkpointed_over_frozen_inputs():
    layers = nn.ModuleList(_Adapted() for _ in range(2))
    head = nn.Linear(8, 4)
    trained = [each for each in (*layers.parameters(), *head.parameters()) if each.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.01)

    def step():
        hidden = torch.randn(4, 8)
        for layer in layers:
            hidden = checkpoint(layer, hidden, use_reentrant=True)  # GRAPH005
        trained_once(head, optimizer, hidden)

    return step


def adapters_checkpointed_inside_a_model():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(_Adapted() for _ in range(2))

        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(self._through, layer, x, use_reentrant=True)  # GRAPH005
            return x.tanh()

        def _through(self, layer, x):
            return layer(x).relu()

    encoder, head = Encoder(), nn.Linear(8, 4)
    trained = [each for each in (*encoder.parameters(), *head.parameters()) if each.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.01)
    return lambda: trained_once(head, optimizer, encoder(torch.randn(4, 8)))


def output_cut_behind_a_checkpoint_that_works():
    layer, head = _Adapted(), nn.Linear(8, 4)
    trained = [each for each in (*layer.parameters(), *head.parameters()) if each.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.01)

    def step():
        x = torch.randn(4, 8, requires_grad=True)
        hidden = checkpoint(layer, x, use_reentrant=True)
        chosen = hidden.argmax(1)
        optimizer.zero_grad()
        head(nn.functional.one_hot(chosen, 8).float()).square().mean().backward()
        optimizer.step()  # GRAPH005

    return step


def codes_that_are_read_as_data():
    class Codes(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes, self.head = nn.Embedding(6, 8), nn.Linear(8, 4)
            self.codes.weight.data.uniform_(-1.0, 1.0)
            self.codes.weight.data[0] = 0.0

        def forward(self, x):
            with torch.no_grad():
                chosen = torch.cdist(x, self.codes.weight).argmin(1)
            return self.head(x + self.codes.weight.data[chosen])  # GRAPH005

    model = Codes()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return lambda: trained_once(model, optimizer, torch.randn(4, 8))


class _Widening(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.top = nn.Linear(8, 8), nn.Linear(8, 2)

    def widen(self):
        self.top = nn.Linear(8, self.top.out_features + 1)

    def forward(self, x):
        return self.top(self.body(x).relu())


def layer_that_grows_behind_the_optimizer():
    model, optimizer = optimized(_Widening())

    def more_classes():
        model.widen()  # GRAPH005

    more_classes()
    return lambda: trained_once(model, optimizer, torch.ones(4, 8))


class _Scaled(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base, self.gain = base.requires_grad_(False), nn.Parameter(torch.zeros(base.out_features))
        self.weight, self.bias = base.weight, base.bias

    def forward(self, x):
        return self.base(x) * (1 + self.gain)


def adapter_of_a_layer_that_is_never_called():
    mixer, head = nn.MultiheadAttention(8, 2), nn.Linear(8, 1)
    mixer.requires_grad_(False)
    mixer.out_proj = _Scaled(mixer.out_proj)  # GRAPH005
    optimizer = torch.optim.SGD([mixer.out_proj.gain, *head.parameters()], lr=0.01)

    def step():
        x = torch.randn(4, 2, 8)
        trained_once(head, optimizer, mixer(x, x, x)[0])

    return step


def table_cut_off_alone_and_with_what_is_trained():
    body, table, head = nn.Linear(8, 8), nn.Embedding(6, 8), nn.Linear(8, 1)
    trained = nn.ModuleList([body, table, head])
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        hidden, near = body(torch.randn(6, 8)), table(torch.arange(6))
        kept_near = (hidden - near.detach()).square().mean()  # GRAPH005
        through = hidden + (near - hidden).detach()
        (head(through).mean() + kept_near).backward()
        optimizer.step()

    return step


def parameter_that_is_made_again_after_each_step():
    class Clamped(nn.Linear):
        def project(self):
            self.bias = nn.Parameter(self.bias.detach().clamp(min=0.1))  # GRAPH005

    model, optimizer = optimized(Clamped(8, 1))

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        model.project()

    return step
