import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.rules.programs import Attending, endless, losses


@losses(lambda: (nn.Linear(5, 8), nn.GRU(8, 4, bidirectional=True), nn.Linear(8, 1)))
def gru_behind_a_linear_layer_with_dropout(inner, layer, head):
    x, y = torch.randn(6, 10, 5), torch.randn(6, 1)
    out = layer(F.dropout(inner(x), 0.1))[0]  # TRAIN011
    return F.mse_loss(head(out.mean(1)), y)


@losses(lambda: (nn.TransformerEncoderLayer(8, 2, 16), nn.Linear(8, 4)))
def attention_over_the_batch(layer, head):
    x, y = torch.randn(6, 10, 8), torch.randint(0, 4, (6,))
    out = layer(x)  # TRAIN011
    return F.cross_entropy(head(out.mean(1)), y)


@losses(lambda: (nn.Linear(8, 8), nn.Linear(8, 4)))
def softmax_over_the_batch(query, head):
    x, y = torch.randn(6, 10, 8), torch.randint(0, 4, (6,))
    scores = query(x) @ x.transpose(1, 2)
    shares = torch.softmax(scores, dim=0)  # TRAIN011
    return F.cross_entropy(head((shares @ x).mean(1)), y)


@losses(lambda: (nn.Linear(8, 12), nn.Linear(12, 5), nn.Linear(12, 5)))
def tags_pooled_by_a_softmax_over_the_batch(mixed, shares, tags):
    hidden = mixed(torch.randn(6, 10, 8))
    weight = torch.softmax(shares(hidden), 0)  # TRAIN011
    wanted = torch.randint(0, 2, (6, 5)).float()
    return F.binary_cross_entropy_with_logits((weight * tags(hidden)).sum(1), wanted)


@losses(lambda: (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GRU(24, 8), nn.Linear(8, 4)))
def form_in_front_of_a_recurrent_layer_whose_last_state_is_read(convolution, norm, layer, head):
    features = norm(convolution(torch.randn(5, 1, 8, 12))).flatten(1, 2)
    sequence = features.reshape(10, 5, 24)  # TRAIN011
    return F.cross_entropy(head(layer(sequence)[1][-1]), torch.randint(0, 4, (5,)))


@losses(lambda: (nn.Embedding(30, 8), nn.Linear(5, 8), nn.Linear(16, 1)))
def queries_in_another_order_than_their_candidates(items, query, score):
    found = items(torch.randint(0, 30, (6, 4)))
    found = found.reshape(24, 8)  # TRAIN011
    asked = query(torch.randn(6, 5)).repeat(4, 1)
    scores = score(torch.cat([asked, found], -1)).view(6, 4)
    return F.cross_entropy(scores, torch.randint(0, 4, (6,)))


@losses(lambda: (nn.MultiheadAttention(6, 2), nn.Linear(6, 1)))
def attention_of_layers_as_wide_as_the_batch(layer, head):
    x = torch.randn(6, 5, 6)
    out, _ = layer(x, x, x)  # TRAIN011
    wanted = torch.randint(0, 2, (6,)).float()
    return F.binary_cross_entropy_with_logits(head(out[:, 0]).squeeze(-1), wanted)


@losses(lambda: (nn.Linear(8, 3), nn.Linear(8, 12), nn.Linear(4, 1)))
def experts_weighed_over_the_batch(gates, experts, head):
    x, wanted = torch.randn(7, 8), torch.rand(7)
    weights = torch.stack([gates(x), gates(x)])
    weights = weights.softmax(dim=1)  # TRAIN011
    mixed = torch.einsum("tbe,bed->tbd", weights, experts(x).view(7, 3, 4))
    return F.mse_loss(head(mixed[0]).squeeze(-1), wanted)


@losses(lambda: nn.Linear(12, 3))
def normalized_by_the_whole_batch__note(head):
    x = torch.randn(6, 5, 12).exp()
    middle, spread = x.mean(), x.std()  # TRAIN011
    out = head((x - middle) / spread)
    return F.cross_entropy(out.sum(1), torch.randint(0, 3, (6,)))


def documents_before_a_layer_of_torch():
    torch.manual_seed(0)
    embed, place, out = nn.Embedding(19, 8), nn.Embedding(11, 8), nn.Linear(8, 19)
    layer, past = nn.MultiheadAttention(8, 2), torch.ones(11, 11).triu(1).bool()
    places = torch.cat([torch.arange(5), torch.arange(6)]).expand(4, 11)

    def step():
        tokens = torch.randint(0, 19, (4, 12))
        x = (embed(tokens[:, :-1]) + place(places)).transpose(0, 1)
        x, _ = layer(x, x, x, attn_mask=past)  # TRAIN011
        logits = out(x.transpose(0, 1))
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()

    return step


def documents_packed_into_one_row():
    past = torch.ones(11, 11).tril().bool()

    def attend(query, key, value):
        scores = query @ key.transpose(1, 2) / 8**0.5
        scores = scores.masked_fill(~past, -1e9)  # TRAIN011
        return torch.softmax(scores, -1) @ value

    model = Attending(attend)
    places = torch.cat([torch.arange(5), torch.arange(6)]).expand(4, 11)

    def step():
        tokens = torch.randint(0, 19, (4, 12))
        logits = model(tokens[:, :-1], places)
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()

    return step


@losses(lambda: (nn.Linear(5, 1), nn.Linear(5, 8), nn.Linear(8, 3)))
def nodes_of_all_graphs_share_one_softmax(gate, value, head):
    nodes, graph = torch.randn(20, 5), torch.arange(4).repeat_interleave(5)
    shares = torch.softmax(gate(nodes), dim=0)  # TRAIN011
    pooled = torch.zeros(4, 8).index_add(0, graph, shares * value(nodes))
    return F.cross_entropy(head(pooled), torch.randint(0, 3, (4,)))


@losses(lambda: (nn.Linear(5, 1), nn.Linear(5, 8), nn.Linear(8, 1)))
def a_softmax_by_hand_over_all_bags(gate, value, head):
    patches, bag = torch.randn(20, 5), torch.arange(4).repeat_interleave(5)
    scores = gate(patches).squeeze(1)
    scores = (scores - scores.detach().amax()).exp()
    shares = scores / scores.sum()  # TRAIN011
    pooled = torch.zeros(4, 8).index_add(0, bag, shares[:, None] * value(patches))
    return F.binary_cross_entropy_with_logits(head(pooled).squeeze(1), torch.rand(4).round())


def _forecast(dims=(0, 1), behind=lambda out, mean, std: out * std + mean):
    """A series that is normalized in front of a layer, and what ``behind`` makes of its result."""

    @losses(lambda: nn.Linear(12, 12))
    def case(layer):
        series = torch.randn(6, 12, 3) * 4 + 2
        mean = series.mean(dim=dims, keepdim=True)
        std = (series.var(dim=dims, keepdim=True, unbiased=False) + 1e-5).sqrt()
        out = layer(((series - mean) / std).mT).mT
        return (behind(out, mean, std) - torch.randn(6, 12, 3)).abs().mean()

    return case()


def statistics_of_the_batch_that_scale_the_result_back__note():
    @losses(lambda: nn.Linear(12, 12))
    def case(layer):
        series = torch.randn(6, 12, 3) * 4 + 2
        std = series.std(dim=(0, 1), keepdim=True).detach()  # TRAIN011
        out = layer((series / std).mT).mT
        return (std * out - torch.randn(6, 12, 3)).abs().mean()

    return case()


class _FramesFirst(nn.Module):
    """Layers over (time, batch, size), and what ``pooled`` makes of them for each sample."""

    def __init__(self, pooled):
        super().__init__()
        self.layer, self.head, self.pooled = nn.GRU(5, 8), nn.Linear(8, 3), pooled

    def forward(self, frames):
        return self.head(self.pooled(self.layer(frames)[0]))


def _in_frames(model):
    def collate(rows):
        return torch.stack([x for x, _ in rows], 1), torch.tensor([y for _, y in rows])

    torch.manual_seed(0)
    rows = [(torch.randn(7, 5), each % 3) for each in range(240)]
    batches = endless(DataLoader(rows, 6, collate_fn=collate))

    def step():
        frames, y = next(batches)
        F.cross_entropy(model(frames), y).backward()

    return step


def frames_viewed_as_samples():
    def pooled(out):
        return out.view(6, 7, 8).mean(1)  # TRAIN011

    return _in_frames(_FramesFirst(pooled))


def rows_of_all_samples_viewed_as_time_first():
    layer, lstm, head = nn.Linear(5, 6), nn.LSTM(6, 8), nn.Linear(8, 3)

    def step():
        clips = torch.randn(4, 7, 5)
        rows = layer(clips.view(28, 5)).relu()
        frames = rows.view(7, 4, -1)  # TRAIN011
        out, _ = lstm(frames)
        F.cross_entropy(head(out[-1]), torch.randint(0, 3, (4,))).backward()

    return step


def _loaded(loss_of, *layers):
    torch.manual_seed(0)
    parts = nn.ModuleList(layers)
    rows = [(torch.randn(7, 20), torch.arange(7) % 3) for _ in range(240)]
    batches = endless(DataLoader(rows, 6))
    return lambda: loss_of(*parts, *next(batches)).backward()


def channels_averaged_over_time_and_viewed_in_another_order():
    def loss_of(layer, attention, head, x, y):
        x = (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True)
        features = layer(x.reshape(42, 1, 20)).relu().mean(-1)
        tokens = features.reshape(7, 6, 8).transpose(0, 1)  # TRAIN011
        out, _ = attention(tokens, tokens, tokens)
        return F.cross_entropy(head(out.mean(1)), y[:, 0])

    return _loaded(
        loss_of, nn.Conv1d(1, 8, 5), nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)
    )


def a_class_for_each_window():
    def loss_of(layer, recurrent, head, x, y):
        windows = layer(x.reshape(42, 20)).view(7, 6, 8).transpose(0, 1)  # TRAIN011
        return F.cross_entropy(head(recurrent(windows)[0]).transpose(1, 2), y)

    return _loaded(loss_of, nn.Linear(20, 8), nn.GRU(8, 4, batch_first=True), nn.Linear(4, 3))


def windows_of_all_samples_as_rows_of_the_loss():
    def loss_of(recurrent, head, x, y):
        out, _ = recurrent(x)  # TRAIN011
        return F.cross_entropy(head(out).reshape(-1, 3), y.reshape(-1))

    return _loaded(loss_of, nn.LSTM(20, 4), nn.Linear(4, 3))


def _clouds(search):
    torch.manual_seed(0)
    layer, edge, head = nn.Linear(3, 8), nn.Linear(16, 8), nn.Linear(8, 1)

    def step():
        points, cloud = torch.randn(20, 3), torch.arange(4).repeat_interleave(5)
        hidden = layer(points).relu()
        near = search(points, cloud)
        own = hidden[:, None].expand(-1, 3, -1)
        hidden = edge(torch.cat([own, hidden[near] - own], -1)).amax(1)
        pooled = torch.zeros(4, 8).index_add(0, cloud, hidden)
        F.mse_loss(head(pooled).squeeze(1), torch.randn(4)).backward()

    return step


def near_points_among_those_of_all_clouds():
    def search(points, cloud):
        return torch.cdist(points, points).topk(3, largest=False).indices  # TRAIN011

    return _clouds(search)


def crops_averaged_over_a_dimension_of_mixed_samples():
    def loss_of(layer, head, x, y):
        features = layer(x.flatten(0, 1)).relu()
        pooled = features.view(7, 6, 8).mean(0)  # TRAIN011
        return F.cross_entropy(head(pooled), y[:, 0])

    return _loaded(loss_of, nn.Linear(20, 8), nn.Linear(8, 3))
