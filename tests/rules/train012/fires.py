import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import Attending, losses


def _step(model):
    def step():
        tokens = torch.randint(0, 19, (4, 12))
        logits = model(tokens[:, :-1])
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()

    return step


def mask_forgotten():
    def attend(query, key, value):
        return F.scaled_dot_product_attention(query, key, value)  # TRAIN012

    return _step(Attending(attend))


def mask_of_the_wrong_sign():
    def attend(query, key, value):
        scores = query @ key.transpose(1, 2) / 8**0.5
        mask = torch.ones(11, 11).tril().bool()
        scores = scores.masked_fill(mask, -1e9)  # TRAIN012
        return torch.softmax(scores, -1) @ value

    return _step(Attending(attend))


@losses(lambda: (nn.Embedding(19, 8), nn.LSTM(8, 4, bidirectional=True), nn.Linear(8, 19)))
def recurrent_in_both_directions(tokens_of, layer, head):
    tokens = torch.randint(0, 19, (12, 4))
    out, _ = layer(tokens_of(tokens[:-1]))  # TRAIN012
    return F.cross_entropy(head(out).flatten(0, 1), tokens[1:].flatten())


@losses(lambda: (nn.Embedding(19, 8), nn.Conv1d(8, 8, 3, padding=1), nn.Linear(8, 19)))
def convolution_padded_on_both_sides(tokens_of, layer, head):
    tokens = torch.randint(0, 19, (4, 12))
    labels = tokens[:, 1:].clone()
    labels[:, :2] = -100
    out = layer(tokens_of(tokens[:, :-1]).transpose(1, 2))  # TRAIN012
    return F.cross_entropy(head(out.transpose(1, 2)).flatten(0, 1), labels.flatten())


@losses(lambda: (nn.Embedding(19, 8), nn.Conv1d(8, 8, 3), nn.Conv1d(8, 19, 1)))
def padded_apart_and_classes_before_positions(tokens_of, layer, head):
    tokens = torch.randint(0, 19, (4, 25))
    x = tokens_of(tokens[:, :-1]).transpose(1, 2)
    x = layer(F.pad(x, (1, 1)))  # TRAIN012
    return F.cross_entropy(head(x), tokens[:, 1:])


@losses(lambda: (nn.Embedding(19, 8), nn.Conv1d(8, 8, 3, padding=2), nn.Linear(8, 19)))
def padding_cut_off_at_the_wrong_end(tokens_of, layer, head):
    tokens = torch.randint(0, 19, (4, 13))
    out = layer(tokens_of(tokens[:, :-1]).transpose(1, 2))
    out = out[:, :, 2:]  # TRAIN012
    return F.cross_entropy(head(out.transpose(1, 2)).flatten(0, 1), tokens[:, 1:].flatten())


@losses(lambda: (nn.Embedding(19, 12), nn.Conv1d(12, 12, 3, padding=2), nn.Linear(12, 19)))
def cut_off_at_the_wrong_end_with_a_channel_for_each_position(tokens_of, layer, head):
    tokens = torch.randint(0, 19, (4, 13))
    out = layer(tokens_of(tokens[:, :-1]).transpose(1, 2))
    out = out[:, :, 2:].relu()  # TRAIN012
    return F.cross_entropy(head(out.transpose(1, 2)).flatten(0, 1), tokens[:, 1:].flatten())


def mask_off_by_one():
    class Causal(Attending):
        def __init__(self):
            super().__init__(self.attended)
            mask = torch.ones(11, 11).bool()
            self.register_buffer("hidden", ~torch.tril(mask, diagonal=1))  # TRAIN012

        def attended(self, query, key, value):
            scores = query @ key.transpose(1, 2) / 8**0.5
            return torch.softmax(scores.masked_fill(self.hidden, -1e9), -1) @ value

    return _step(Causal())


def bias_that_hides_the_past():
    places = torch.arange(11)
    apart = places[None] - places[:, None]
    bias = (-apart.abs().float()).masked_fill(apart < 0, float("-inf"))  # TRAIN012

    def attend(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias)

    return _step(Attending(attend))


@losses(lambda: (nn.Conv1d(3, 8, 3, padding=2), nn.Dropout(0.1), nn.Conv1d(8, 3, 1)))
def values_of_a_series_cut_off_at_the_wrong_end(layer, drop, head):
    series = torch.randn(4, 3, 17).cumsum(-1)
    out = layer(series[..., :-1])
    out = drop(out[:, :, 2:].relu())  # TRAIN012
    return F.mse_loss(head(out), series[..., 1:])


@losses(lambda: (nn.GRU(3, 5, batch_first=True, bidirectional=True), nn.Linear(10, 6)))
def values_of_a_series_read_in_both_directions(layer, head):
    series = torch.randn(4, 17, 3).cumsum(1)
    out, _ = layer(series[:, :-1])  # TRAIN012
    mean, scale = head(out).chunk(2, -1)
    return (scale + (series[:, 1:] - mean).square() * (-2 * scale).exp()).mean()


@losses(lambda: (nn.GRU(3, 8, batch_first=True), nn.Linear(8, 1)))
def a_channel_of_a_series_beside_the_largest_of_its_neighbors(layer, head):
    series = torch.randn(4, 17, 3).cumsum(1)
    x = F.max_pool1d(series.mT, 3, stride=1, padding=1).mT  # TRAIN012
    return F.l1_loss(head(layer(x)[0])[:, :-1, 0], series[:, 1:, 2])


@losses(lambda: (nn.Conv1d(6, 8, 3, padding=1), nn.Conv1d(8, 6, 1)))
def classes_of_a_series_as_one_hot_rows(layer, head):
    classes = torch.randint(0, 6, (4, 17))
    x = F.one_hot(classes[:, :-1], 6).float().transpose(1, 2)
    return F.cross_entropy(head(layer(x).relu()), classes[:, 1:])  # TRAIN012


@losses(lambda: (nn.GRU(6, 5, batch_first=True, bidirectional=True), nn.Linear(10, 6)))
def classes_of_a_series_read_in_both_directions(layer, head):
    classes = torch.randint(0, 6, (4, 17))
    out, _ = layer(F.one_hot(classes[:, :-1], 6).float())  # TRAIN012
    return F.cross_entropy(head(out).reshape(-1, 6), classes[:, 1:].reshape(-1))


def ones_and_zeros_that_are_added():
    mask = torch.ones(11, 11).tril()
    return _step(Attending(lambda query, key, value: F.scaled_dot_product_attention(query, key, value, mask)))  # TRAIN012


@losses(lambda: (nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 1)))
def ones_and_zeros_that_are_added_by_a_layer(layer, head):
    x, mask = torch.randn(3, 9, 8), 1 - torch.ones(9, 9).tril()
    out, _ = layer(x, x, x, attn_mask=mask, need_weights=False)  # TRAIN012
    return head(out).square().mean()


@losses(lambda: nn.Linear(8, 24))
def ones_and_zeros_that_are_added_by_hand(mixed):
    query, key, value = mixed(torch.randn(3, 9, 8)).chunk(3, -1)
    scores = query @ key.mT + torch.ones(9, 9).tril()
    return (scores.softmax(-1) @ value).square().mean()  # TRAIN012


class _Shifted(nn.Module):
    """Mixes each position with the one before it, as RWKV does."""

    def __init__(self, before):
        super().__init__()
        self.before, self.tokens = before, nn.Embedding(19, 8)
        self.first, self.second, self.head = (nn.Linear(8, size) for size in (8, 8, 19))

    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in (self.first, self.second):
            x = x + layer((x + self.before(x)) / 2)
            x = F.scaled_dot_product_attention(x, x, x, is_causal=True)
        return self.head(x)


def the_last_position_wraps_around():
    def before(x):
        return torch.roll(x, 1, dims=1)  # TRAIN012

    return _step(_Shifted(before))


def rolled_and_cleared_before_attention_without_a_mask():
    class Attends(_Shifted):
        def forward(self, tokens):
            x = self.tokens(tokens)
            x = x + self.first((x + self.before(x)) / 2)
            return self.head(F.scaled_dot_product_attention(x, x, x))  # TRAIN012

    def before(x):
        first = torch.arange(x.shape[1])[:, None] == 0
        return torch.roll(x, 1, dims=1).masked_fill(first, 0.0)

    return _step(Attends(before))


class _Windows:
    """Windows of a random walk and a channel that is made of it, with the values that follow."""

    def __init__(self, channel, noise=0.0):
        torch.manual_seed(0)
        walk = torch.randn(2000).cumsum(0)
        filtered = channel(walk) + noise * torch.randn(2000)
        self.table = torch.stack([walk, filtered, torch.randn(2000)], 1)[40:-40]

    def batch(self, length=48, steps=6, channels=slice(0, 3)):
        starts = torch.randint(0, len(self.table) - length - steps, (16,)).tolist()
        windows = torch.stack([self.table[each : each + length + steps] for each in starts])
        return windows[:, :length, channels], windows[:, length:, 0]


def _forecast(windows, **batch):
    model = nn.Sequential(nn.Flatten(), nn.Linear(48 * 3, 6))

    def step():
        x, y = windows.batch(**batch)
        F.mse_loss(model(x), y).backward()

    return step


def centered_average():
    def average(walk):
        padded = F.pad(walk[None, None], (4, 4), mode="replicate")
        return F.conv1d(padded, torch.full((1, 1, 9), 1 / 9))[0, 0]  # TRAIN012

    return _forecast(_Windows(average))


@losses(lambda: (nn.Conv1d(1, 8, 3), nn.Conv1d(8, 1, 1)))
def a_scale_of_the_whole_window(layer, head):
    series = torch.randn(4, 17).cumsum(-1)
    x = series[:, :-1]
    level = x.mean(-1, keepdim=True)  # TRAIN012
    spread = (x - level).square().mean(-1, keepdim=True).sqrt() + 1e-3
    out = layer(F.pad(((x - level) / spread)[:, None], (2, 0))).relu()
    return F.mse_loss(head(out)[:, 0] * spread + level, series[:, 1:])


@losses(lambda: (nn.Embedding(19, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 19)))
def a_masked_average_beside_the_recurrence(tokens_of, layer, head):
    tokens = torch.randint(1, 19, (4, 12))
    x = tokens_of(tokens[:, :-1])
    kept = (tokens[:, :-1] != 3).float()[..., None]
    topic = (x * kept).sum(1) / 11  # TRAIN012
    out = layer(x)[0] + topic[:, None].tanh()
    return F.cross_entropy(head(out).flatten(0, 1), tokens[:, 1:].flatten())


def _convolved(gate):
    torch.manual_seed(0)
    layers = nn.Embedding(19, 8), nn.Conv1d(8, 8, 3), nn.Conv1d(8, 19, 1), nn.Linear(8, 8)

    def step():
        tokens = torch.randint(0, 19, (4, 12))
        tokens_of, layer, head, learned = layers
        x = tokens_of(tokens[:, :-1]).transpose(1, 2)
        x = layer(F.pad(x, (2, 0))).relu()
        F.cross_entropy(head(gate(x, learned)), tokens[:, 1:]).backward()

    return step


def channels_weighed_by_their_averages():
    def gate(x, learned):
        squeezed = x.mean(-1)  # TRAIN012
        return x * learned(squeezed).sigmoid()[..., None]

    return _convolved(gate)


def channels_weighed_by_pooled_averages():
    pool = nn.AdaptiveAvgPool1d(1)

    def gate(x, learned):
        squeezed = pool(x)  # TRAIN012
        return x * learned(squeezed.transpose(1, 2)).transpose(1, 2).sigmoid()

    return _convolved(gate)


def a_weighted_average_added_to_each_position():
    def gate(x, learned):
        shares = learned(x.transpose(1, 2)).mean(-1).exp()[:, None]
        return x + (shares * x).sum(-1, keepdim=True)  # TRAIN012

    return _convolved(gate)


def the_largest_of_each_channel():
    def gate(x, learned):
        peak = x.amax(-1)  # TRAIN012
        return x + learned(peak)[..., None]

    return _convolved(gate)


def a_norm_over_positions():
    return _convolved(lambda x, learned: F.group_norm(x, 2))  # TRAIN012


@losses(lambda: (nn.Embedding(19, 8), nn.Linear(11, 11), nn.Linear(8, 19)))
def a_layer_that_mixes_positions(tokens_of, mixer, head):
    tokens = torch.randint(0, 19, (4, 12))
    x = tokens_of(tokens[:, :-1])
    x = x + mixer(x.transpose(1, 2)).transpose(1, 2).relu()  # TRAIN012
    return F.cross_entropy(head(x).flatten(0, 1), tokens[:, 1:].flatten())


@losses(lambda: (nn.Embedding(19, 8), nn.Linear(8, 19)))
def a_position_beside_the_one_behind_it(tokens_of, head):
    tokens = torch.randint(0, 19, (4, 12))
    x = tokens_of(tokens[:, :-1])
    last = torch.zeros(4, 1, 8)
    x = x + torch.cat([x[:, 1:], last], 1)  # TRAIN012
    return F.cross_entropy(head(x).flatten(0, 1), tokens[:, 1:].flatten())


def a_mask_that_compares_blocks():
    class Blocks(Attending):
        def __init__(self):
            super().__init__(self.attended)
            block = torch.arange(11) // 4
            near = block[:, None] - block[None] < 2
            before = block[None, :] <= block[:, None]  # TRAIN012
            self.register_buffer("seen", near & before)

        def attended(self, query, key, value):
            return F.scaled_dot_product_attention(query, key, value, attn_mask=self.seen)

    return _step(Blocks())


def a_mask_that_compares_blocks_in_the_step():
    def attend(query, key, value):
        at = torch.arange(11)
        block = at // 4
        earlier = block[None] <= block[:, None]  # TRAIN012
        close = at[:, None] - at[None] < 6
        allowed = earlier & close
        return F.scaled_dot_product_attention(query, key, value, allowed)

    return _step(Attending(attend))


def a_mask_of_two_that_do_not_order():
    kept = torch.ones(11, 11).bool()
    near = (torch.arange(11)[:, None] - torch.arange(11)).abs() < 4

    def attend(query, key, value):
        mask = kept & near  # TRAIN012
        return F.scaled_dot_product_attention(query, key, value, mask)

    return _step(Attending(attend))


def _scaled(scale):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 5))

    def step():
        window = torch.randn(4, 17).cumsum(1)
        past, future = window[:, :12], window[:, 12:]
        mean, std = scale(window, past)
        F.mse_loss(model((past - mean) / std), (future - mean) / std).backward()

    return step


def a_window_scaled_together_with_what_follows():
    def scale(window, past):
        mean = window.mean(1, keepdim=True)  # TRAIN012
        return mean, past.std(1, keepdim=True)

    return _scaled(scale)


def a_deviation_of_what_follows_too():
    def scale(window, past):
        std = window.std(dim=-1, keepdim=True).clamp_min(1e-3)  # TRAIN012
        return past.mean(1, keepdim=True), std

    return _scaled(scale)


@losses(lambda: nn.Linear(12, 5))
def a_window_cut_once_it_is_scaled(model):
    window = torch.randn(4, 17).cumsum(1)
    scaled = window - window.mean(1, keepdim=True)  # TRAIN012
    return F.mse_loss(model(scaled[:, :12]), scaled[:, 12:])


@losses(lambda: nn.Linear(12, 5))
def windows_scaled_one_by_one(model):
    samples = [torch.randn(17).cumsum(0) for _ in range(4)]
    samples = [each / each.std() for each in samples]  # TRAIN012
    past, future = (torch.stack(each) for each in zip(*((x[:12], x[12:]) for x in samples)))
    return F.mse_loss(model(past), future)
