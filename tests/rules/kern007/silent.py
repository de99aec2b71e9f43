import torch
from torch import nn

from tests.rules.programs import optimized, stepped


def _net():
    net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))
    return net, torch.optim.SGD(net.parameters(), lr=1e-3)


def each_turn_needs_the_one_before():
    net, optimizer = _net()

    def step():
        x, noise = torch.randn(2, 4), torch.randn(12, 2, 4)
        for t in range(12):
            x = x + net(x + noise[t])
        stepped(optimizer, x.square().mean())

    return step


def two_arguments_of_which_one_is_handed_on():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(8, 4)

        def forward(self, x, state):
            return torch.tanh(self.mix(torch.cat([x, state], -1)))

    net, optimizer = optimized(Mixed())

    def step():
        x, state = torch.randn(12, 2, 4), torch.zeros(2, 4)
        for t in range(12):
            state = net(x[t], state)
        stepped(optimizer, state.square().mean())

    return step


def spiking_layer_that_keeps_its_voltage():
    class Spiking(nn.Module):
        def __init__(self):
            super().__init__()
            self.weigh, self.voltage = nn.Linear(4, 4), None

        def forward(self, x):
            self.voltage = self.weigh(x) + (0 if self.voltage is None else 0.9 * self.voltage)
            return torch.sigmoid(self.voltage)

    net, optimizer = optimized(Spiking())

    def step():
        x, net.voltage, total = torch.randn(12, 2, 4), None, 0
        for t in range(12):
            total = total + net(x[t])
        stepped(optimizer, total.square().mean())

    return step


def batch_norm_that_counts_each_call():
    net, optimizer = optimized(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))

    def step():
        x, total = torch.randn(12, 8, 4), 0
        for t in range(12):
            total = total + net(x[t])
        stepped(optimizer, total.square().mean())

    return step


def next_piece_that_the_loop_writes():
    net, optimizer = _net()

    def step():
        x = torch.randn(12, 2, 4)
        with torch.no_grad():
            for t in range(11):
                x[t + 1] += net(x[t])
        stepped(optimizer, net(x).square().mean())

    return step


def cell_with_a_state_that_is_reset_by_a_mask():
    cell, optimizer = optimized(nn.GRUCell(6, 8), torch.optim.Adam)

    def step():
        x, goes_on, state = torch.randn(16, 4, 6), torch.ones(16, 4, 1), torch.zeros(4, 8)
        for t in range(16):
            state = cell(x[t], state * goes_on[t])
        stepped(optimizer, state.square().mean())

    return step


def decoder_fed_with_what_it_said():
    cell, say, embed = nn.GRUCell(6, 8), nn.Linear(8, 50), nn.Embedding(50, 6)
    parts, optimizer = optimized(nn.ModuleList([cell, say, embed]), torch.optim.Adam)

    def step():
        word, state, loss = torch.zeros(4, dtype=torch.long), torch.zeros(4, 8), 0
        for _ in range(12):
            state = cell(embed(word), state)
            word = say(state).argmax(-1)
            loss = loss + say(state).logsumexp(-1).mean()
        stepped(optimizer, loss)

    return step


def micro_batches_with_a_backward_each():
    net, optimizer = _net()

    def step():
        x = torch.randn(12, 2, 4)
        optimizer.zero_grad()
        for t in range(12):
            net(x[t]).square().mean().backward()
        optimizer.step()

    return step


def large_pieces_to_save_memory():
    net, optimizer = _net()
    x = torch.randn(8 * 4096, 4)

    def step():
        loss = 0
        with torch.no_grad():
            for piece in x.split(4096):
                loss = loss + net(piece).square().mean()
        stepped(optimizer, net(x[:8]).square().mean() + 0 * loss)

    return step


def crops_of_several_sizes():
    net, optimizer = optimized(nn.Sequential(nn.Conv1d(2, 4, 3), nn.AdaptiveAvgPool1d(1)))

    def step():
        x, loss = torch.randn(1, 2, 64), 0
        for n in range(12):
            loss = loss + net(x[..., n : 2 * n + 20]).square().mean()
        stepped(optimizer, loss)

    return step


def as_many_turns_as_the_data_asks_for():
    net, optimizer = _net()
    count = [0]

    def step():
        count[0] += 1
        x, loss = torch.randn(40, 2, 4), 0
        for t in range(10 + count[0] % 7):
            y = net(x[t]).square().mean()
            loss = loss + y
            if y < -1:
                break
        stepped(optimizer, loss)

    return step


def a_few_heads_in_turn():
    heads, optimizer = optimized(nn.ModuleList(nn.Linear(4, 1) for _ in range(12)))

    def step():
        x = torch.randn(12, 2, 4)
        stepped(optimizer, sum(head(x[t]).square().mean() for t, head in enumerate(heads)))

    return step


def a_small_part_of_a_long_step():
    net, optimizer = _net()
    body = nn.Linear(800, 800)
    optimizer.add_param_group({"params": body.parameters()})

    def step():
        x, wide, loss = torch.randn(8, 1, 4), torch.randn(400, 800), 0
        for t in range(8):
            loss = loss + net(x[t]).square().mean()
        for _ in range(16):  # three times the threshold's part, so that a busy machine does not matter
            wide = body(wide)
        stepped(optimizer, loss + wide.square().mean())

    return step


def library_that_loops_over_its_own_pieces():
    net, inner = nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*net.parameters(), *inner.parameters()], lr=1e-3)

    def step():
        x = torch.randn(12, 2, 4)
        for _ in range(1):
            stepped(optimizer, sum(map(lambda piece: inner(piece).sum(), x)).square())

    return step


def augmentation_that_draws_for_each_image():
    class Shift(nn.Module):
        def forward(self, image):
            return image.roll(int(torch.randint(3, ())), -1)

    net, shift = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 1)), Shift()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step():
        images = torch.randn(12, 3, 8, 8)
        stepped(optimizer, net(torch.stack([shift(image) for image in images])).square().mean())

    return step
