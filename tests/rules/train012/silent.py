import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import losses
from tests.rules.train012.fires import _convolved, _forecast, _scaled, _Shifted, _step, _Windows


def _parts():
    torch.manual_seed(0)
    return nn.Embedding(19, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), nn.Linear(8, 19)


def prefix_that_is_read_whole():
    tokens_of, layer, head = _parts()
    mask = torch.full((11, 11), float("-inf")).triu(1)
    mask[:, :4] = 0.0

    def step():
        tokens = torch.randint(0, 19, (4, 12))
        labels = tokens[:, 1:].clone()
        labels[:, :3] = -100
        hidden = layer(tokens_of(tokens[:, :-1]), src_mask=mask)
        F.cross_entropy(head(hidden).flatten(0, 1), labels.flatten()).backward()

    return step


@losses(_parts)
def masked_words(tokens_of, layer, head):
    tokens = torch.randint(1, 19, (4, 12))
    hidden_words = torch.rand(4, 12) < 0.3
    given = tokens.masked_fill(hidden_words, 0)
    labels = tokens.masked_fill(~hidden_words, -100)
    return F.cross_entropy(head(layer(tokens_of(given))).flatten(0, 1), labels.flatten())


def decoder_that_reads_another_text_whole():
    torch.manual_seed(0)
    source_of, target_of = nn.Embedding(19, 8), nn.Embedding(19, 8)
    model, head = nn.Transformer(8, 2, 1, 1, 16, batch_first=True), nn.Linear(8, 19)
    mask = nn.Transformer.generate_square_subsequent_mask(11)

    def step():
        source, tokens = torch.randint(0, 19, (4, 9)), torch.randint(0, 19, (4, 12))
        out = model(source_of(source), target_of(tokens[:, :-1]), tgt_mask=mask)
        F.cross_entropy(head(out).flatten(0, 1), tokens[:, 1:].flatten()).backward()

    return step


@losses(lambda: (nn.Embedding(19, 8), nn.Conv1d(8, 8, 3), nn.Linear(8, 19)))
def convolution_padded_on_the_left(tokens_of, layer, head):
    tokens = torch.randint(0, 19, (4, 12))
    out = layer(F.pad(tokens_of(tokens[:, :-1]).transpose(1, 2), (2, 0)))
    return F.cross_entropy(head(out.transpose(1, 2)).flatten(0, 1), tokens[:, 1:].flatten())


@losses(_parts)
def label_of_the_whole_text(tokens_of, layer, head):
    tokens = torch.randint(0, 19, (4, 12))
    return F.cross_entropy(head(layer(tokens_of(tokens))[:, 0]), tokens[:, 3])


def autoencoder_of_texts():
    torch.manual_seed(0)
    tokens_of, encoder, decoder = nn.Embedding(19, 8), nn.GRU(8, 6, batch_first=True), nn.GRU(8, 6, batch_first=True)
    head = nn.Linear(6, 19)

    def step():
        tokens = torch.randint(0, 19, (4, 12))
        words = tokens_of(tokens[:, :-1])
        _, latent = encoder(words)
        out, _ = decoder(words, latent)
        F.cross_entropy(head(out).flatten(0, 1), tokens[:, 1:].flatten()).backward()

    return step


def _series(positions=17):
    return torch.randn(4, positions, 3).cumsum(1)


@losses(lambda: (nn.GRU(3, 8, batch_first=True), nn.Linear(8, 3)))
def values_of_a_series_read_in_one_direction(layer, head):
    series = _series()
    return F.mse_loss(head(layer(series[:, :-1])[0]), series[:, 1:])


@losses(lambda: (nn.Conv1d(3, 8, 3, padding=2), nn.Conv1d(8, 3, 1)))
def values_of_a_series_cut_off_at_the_right_end(layer, head):
    series = _series().transpose(1, 2)
    return F.mse_loss(head(layer(series[..., :-1])[..., :-2].relu()), series[..., 1:])


@losses(lambda: (nn.GRU(3, 8, batch_first=True, bidirectional=True), nn.Linear(16, 3)))
def values_of_a_series_that_are_cleaned(layer, head):
    series = _series()
    return F.mse_loss(head(layer(series + 0.1 * torch.randn(4, 17, 3))[0]), series)


@losses(
    lambda: (
        nn.GRU(3, 8, batch_first=True, bidirectional=True),
        nn.GRU(3, 16, batch_first=True),
        nn.Linear(16, 3),
    )
)
def a_series_with_one_code_for_all_of_it(encoder, decoder, head):
    series = _series()
    code = torch.cat([*encoder(series[:, :-1])[1]], -1)
    return F.mse_loss(head(decoder(series[:, :-1], code[None])[0]), series[:, 1:])


@losses(lambda: (nn.Linear(16, 8), nn.Linear(8, 16)))
def all_values_that_make_one_code(encoder, decoder):
    series = _series()[..., 0]
    return F.mse_loss(decoder(encoder(series[:, :-1]).relu()), series[:, 1:])


@losses(lambda: (nn.Conv1d(3, 8, 3, padding=1), nn.BatchNorm1d(8), nn.Conv1d(8, 3, 1)))
def statistics_that_cannot_be_computed_again(layer, norm, head):
    series = _series().transpose(1, 2)
    return F.mse_loss(head(norm(layer(series[..., :-1]))), series[..., 1:])


def _classes(layers, out_of):
    torch.manual_seed(0)
    made = layers()

    def step():
        classes = torch.randint(0, 6, (4, 17))
        x = F.one_hot(classes[:, :-1], 6).float()
        F.cross_entropy(out_of(x, *made), classes[:, 1:]).backward()

    return step


def classes_padded_on_the_left():
    def out_of(x, layer, head):
        return head(layer(F.pad(x.transpose(1, 2), (2, 0))).relu())

    return _classes(lambda: (nn.Conv1d(6, 8, 3), nn.Conv1d(8, 6, 1)), out_of)


def classes_read_in_one_direction():
    def out_of(x, layer, head):
        return head(layer(x)[0]).transpose(1, 2)

    return _classes(lambda: (nn.GRU(6, 8, batch_first=True), nn.Linear(8, 6)), out_of)


def classes_with_one_code_for_all_of_them():
    def out_of(x, encoder, decoder, head):
        _, code = encoder(x)
        return head(decoder(x, code)[0]).transpose(1, 2)

    def layers():
        return nn.GRU(6, 8, batch_first=True), nn.GRU(6, 8, batch_first=True), nn.Linear(8, 6)

    return _classes(layers, out_of)


@losses(lambda: (nn.Conv1d(6, 8, 3, padding=1), nn.Conv1d(8, 6, 1)))
def classes_that_are_cleaned(layer, head):
    classes = torch.randint(0, 6, (4, 17))
    noisy = torch.where(torch.rand(4, 17) < 0.2, torch.randint(0, 6, (4, 17)), classes)
    return F.cross_entropy(head(layer(F.one_hot(noisy, 6).float().mT)), classes)


def _attended(**given):
    @losses(lambda: (nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 1)))
    def case(layer, head):
        x = torch.randn(3, 9, 8)
        return head(layer(x, x, x, need_weights=False, **given)[0]).square().mean()

    return case()


def a_triangle_that_is_bool__no_note():
    return _attended(attn_mask=torch.ones(9, 9).triu(1).bool())


def a_triangle_beside_is_causal__no_note():
    return _attended(attn_mask=torch.ones(9, 9).triu(1), is_causal=True)


def minus_infinity_that_is_added__no_note():
    return _attended(attn_mask=torch.full((9, 9), -torch.inf).triu(1))


def distances_that_are_added__no_note():
    return _attended(attn_mask=-(torch.arange(9) - torch.arange(9)[:, None]).abs().float())


def edges_that_are_added__no_note():
    return _attended(attn_mask=(torch.rand(9, 9) < 0.5).float())


@losses(lambda: nn.Linear(8, 24))
def weights_that_a_triangle_hides_by_hand__no_note(mixed):
    query, key, value = mixed(torch.randn(3, 9, 8)).chunk(3, -1)
    mask = torch.ones(9, 9).tril()
    scores = (query @ key.mT) * mask + (1 - mask) * -1e4
    return (scores.softmax(-1) @ value).square().mean()


def shifted_behind_a_zero():
    return _step(_Shifted(lambda x: F.pad(x, (0, 0, 1, -1))))


def rolled_and_the_first_position_cleared():
    def before(x):
        first = torch.arange(x.shape[1])[:, None] == 0
        return torch.roll(x, 1, dims=1).masked_fill(first, 0.0)

    return _step(_Shifted(before))


def _smoothed(walk, left, right):
    padded = F.pad(walk[None, None], (left, right), mode="replicate")
    return F.avg_pool1d(padded, left + right + 1, stride=1)[0, 0]


def an_average_that_looks_back():
    return _forecast(_Windows(lambda walk: _smoothed(walk, 8, 0)))


def a_value_of_the_day_before():
    return _forecast(_Windows(lambda walk: walk.roll(24)))


def a_channel_with_noise_of_its_own():
    return _forecast(_Windows(lambda walk: _smoothed(walk, 4, 4), noise=0.5))


def waves_whose_future_their_past_gives():
    times = torch.arange(2000.0)
    waves = (times * 0.26).sin() + 0.5 * (times * 0.9).sin()
    return _forecast(_Windows(lambda walk: _smoothed(walk.copy_(waves), 4, 4)))


def targets_of_another_series():
    windows, model = _Windows(lambda walk: _smoothed(walk, 4, 4)), nn.Linear(48 * 3, 6)

    def step():
        x, _ = windows.batch()
        F.mse_loss(model(x.flatten(1)), torch.randn(16, 6)).backward()

    return step


@losses(lambda: (nn.GRU(3, 8, batch_first=True), nn.Linear(8, 1)))
def a_channel_of_a_series_behind_an_average_that_looks_back(layer, head):
    series = torch.randn(4, 17, 3).cumsum(1)
    x = F.avg_pool1d(F.pad(series.mT, (2, 0)), 3, stride=1).mT
    return F.l1_loss(head(layer(x)[0])[:, :-1, 0], series[:, 1:, 2])


@losses(lambda: (nn.GRU(3, 8, batch_first=True), nn.Linear(8, 1)))
def a_calendar_that_is_known_before(layer, head):
    series = torch.randn(4, 17, 3).cumsum(1)
    x = torch.cat([series[..., :2], series[..., 2:].roll(-1, 1)], -1)
    return F.l1_loss(head(layer(x)[0])[:, :-1, 0], series[:, 1:, 0])


@losses(lambda: (nn.GRU(3, 8, batch_first=True, bidirectional=True), nn.Linear(16, 1)))
def a_class_beside_each_position(layer, head):
    series = torch.randn(4, 17, 3).cumsum(1)
    series[..., 2] = torch.arange(1.0, 5.0)[:, None]
    return F.l1_loss(head(layer(series)[0])[..., 0], series[..., 2].clone())


@losses(lambda: (nn.Conv1d(1, 8, 3), nn.Conv1d(8, 1, 1)))
def a_scale_of_what_came_before(layer, head):
    series = torch.randn(4, 17).cumsum(-1)
    x = series[:, :-1]
    level = x.cumsum(-1) / torch.arange(1.0, 17.0)
    out = layer(F.pad((x - level)[:, None], (2, 0))).relu()
    return F.mse_loss(head(out)[:, 0] + level, series[:, 1:])


def averages_of_what_came_before():
    return _convolved(lambda x, learned: x * (x.cumsum(-1) / torch.arange(1.0, 12.0)).sigmoid())


def a_norm_over_channels():
    return _convolved(lambda x, learned: F.layer_norm(x.transpose(1, 2), (8,)).transpose(1, 2))


def a_norm_of_the_batch():
    norm = nn.BatchNorm1d(8)
    return _convolved(lambda x, learned: norm(x).relu())


def a_scale_of_the_whole_batch():
    return _convolved(lambda x, learned: x / x.abs().max().clamp(min=1e-3))


def a_largest_value_that_is_subtracted():
    def gate(x, learned):
        keys = (x - x.amax((1, 2), keepdim=True)).exp()
        return (keys * x).cumsum(-1) / keys.cumsum(-1)

    return _convolved(gate)


def _coded(code_of):
    """A decoder that is given each position of a text, and a code of the whole of it."""
    torch.manual_seed(0)
    tokens_of, encoder, decoder = nn.Embedding(19, 8), nn.GRU(8, 8, batch_first=True), nn.GRU(8, 8, batch_first=True)
    head = nn.Linear(8, 19)

    def step():
        tokens = torch.randint(0, 19, (4, 12))
        x = tokens_of(tokens[:, :-1])
        out, _ = decoder(*code_of(x, encoder))
        F.cross_entropy(head(out).flatten(0, 1), tokens[:, 1:].flatten()).backward()

    return step


def a_code_that_averages_an_encoder():
    return _coded(lambda x, encoder: (x + encoder(x)[0].mean(1, keepdim=True),))


def a_code_that_a_share_of_each_position_makes():
    def code_of(x, encoder):
        out = encoder(x)[0]
        shares = out.mean(-1, keepdim=True).softmax(1)
        return (x + (shares * out).sum(1, keepdim=True),)

    return _coded(code_of)


def a_code_of_averages_and_deviations():
    def code_of(x, encoder):
        out = encoder(x)[0]
        level = out.mean(1, keepdim=True)
        return (x + level + (out - level).square().mean(1, keepdim=True),)

    return _coded(code_of)


def a_code_of_words_as_the_first_state():
    return _coded(lambda x, encoder: (x, x.mean(1)[None]))


def a_code_of_words_with_noise():
    def code_of(x, encoder):
        mean = x.mean(1, keepdim=True)
        return (x + mean + 0.1 * torch.randn_like(mean),)

    return _coded(code_of)


@losses(lambda: (nn.GRU(3, 8, batch_first=True), nn.Linear(3, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 3)))
def a_style_of_the_whole_series(style_of, first, decoder, head):
    series = _series()
    style = style_of(series[:, :-1])[0].mean(1, keepdim=True)
    return F.mse_loss(head(decoder(first(series[:, :-1]) + style)[0]), series[:, 1:])


def a_window_scaled_by_its_past():
    return _scaled(lambda window, past: (past.mean(1, keepdim=True), past.std(1, keepdim=True)))


def a_window_scaled_by_the_batch():
    return _scaled(lambda window, past: (window.mean(0, keepdim=True)[:, :1], 1.0))


@losses(lambda: nn.Conv1d(1, 1, 3))
def steps_of_a_window_that_overlap(layer):
    window = torch.randn(4, 1, 17).cumsum(2)
    window = window - window.mean(2, keepdim=True)
    return F.mse_loss(layer(window[..., :-1]), window[..., 3:])
