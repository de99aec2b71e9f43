import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.rules.programs import losses
from tests.rules.train011.fires import _clouds, _forecast, _FramesFirst, _in_frames, _loaded


def _labels(n=6):
    return torch.randint(0, 4, (n,))


@losses(lambda: (nn.LSTM(5, 8), nn.Linear(8, 4)))
def positions_first_throughout(layer, head):
    out = layer(torch.randn(10, 6, 5))[0]
    return F.cross_entropy(head(out[-1]), _labels())


@losses(lambda: (nn.Linear(5, 8), nn.TransformerEncoderLayer(8, 2, 16), nn.Linear(8, 4)))
def exchanged_and_exchanged_back(inner, layer, head):
    x = inner(torch.randn(6, 10, 5)).transpose(0, 1)
    return F.cross_entropy(head(layer(x).transpose(0, 1).mean(1)), _labels())


@losses(lambda: (nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)))
def batch_norms_of_torch_and_by_hand(one, norm, two):
    x = norm(one(torch.randn(6, 8)))
    x = (x - x.mean(0)) / (x.var(0) + 1e-5).sqrt()
    return F.cross_entropy(two(x), _labels())


@losses(lambda: (nn.Linear(8, 24), nn.Linear(8, 4)))
def heads_are_split_and_joined(mixed, head):
    query, key, value = (
        each.view(6, 10, 2, 4).transpose(1, 2) for each in mixed(torch.randn(6, 10, 8)).chunk(3, -1)
    )
    out = F.scaled_dot_product_attention(query, key, value)
    out = out.transpose(1, 2).reshape(6, 10, 8)
    return F.cross_entropy(head(out.mean(1)), _labels())


@losses(lambda: (nn.Linear(8, 12), nn.Linear(12, 4)))
def positions_laid_out_and_cut_again(one, two):
    x = one(torch.randn(6, 10, 8).view(60, 8))
    return F.cross_entropy(two(torch.relu(x).view(6, 10, 12).mean(1)), _labels())


@losses(lambda: (nn.Linear(8, 12), nn.Linear(12, 4)))
def samples_that_are_mixed_up_as_augmentation(one, two):
    x = one(torch.randn(6, 8))
    x = 0.7 * x + 0.3 * x[torch.randperm(6)]
    return F.cross_entropy(two(x), _labels())


@losses(lambda: (nn.Linear(8, 12), nn.Linear(12, 4), (torch.rand(6, 6) > 0.5).float()))
def nodes_of_a_graph(one, two, adjacency):
    x = torch.relu(adjacency @ one(torch.randn(6, 8)))
    shares = torch.softmax(x @ x.t(), dim=-1)
    return F.cross_entropy(two(shares @ x), _labels())


def words_of_one_sentence():
    layer, head = nn.LSTM(8, 8), nn.Linear(8, 4)

    def step():
        out = layer(torch.randn(6, 1, 8))[0]
        F.cross_entropy(head(out.view(6, 8)), _labels()).backward()
        F.cross_entropy(head(layer(torch.randn(6, 8))[0]), _labels()).backward()

    return step


@losses(lambda: (nn.Linear(8, 8), nn.Linear(8, 8)))
def pairs_of_images_and_texts(images, texts):
    one, two = F.normalize(images(torch.randn(6, 8))), F.normalize(texts(torch.randn(6, 8)))
    return F.cross_entropy(one @ two.t(), torch.arange(6))


@losses(
    lambda: (nn.GRU(8, 8, batch_first=True), nn.Linear(8, 4), torch.tensor([10, 9, 7, 7, 3, 2]))
)
def lengths_that_are_packed(layer, head, lengths):
    packed = pack_padded_sequence(torch.randn(6, 10, 8), lengths, batch_first=True)
    out, _ = pad_packed_sequence(layer(packed)[0], batch_first=True)
    return F.cross_entropy(head(out.sum(1)), _labels())


@losses(lambda: (nn.LSTM(5, 8), nn.Linear(8, 4)))
def as_many_positions_as_samples(layer, head):
    out = layer(torch.randn(6, 6, 5))[0]
    return F.cross_entropy(head(out[-1]), _labels())


@losses(lambda: (nn.Linear(8, 12), nn.Linear(12, 4)))
def one_scale_for_all(one, two):
    x = one(torch.randn(6, 10, 8)).view(60, 12)
    x = (x / x.abs().max()).view(6, 10, 12)
    return F.cross_entropy(two(x.mean(1)), _labels())


@losses(lambda: (nn.Linear(8, 12), nn.Linear(12, 4)))
def positions_that_are_shuffled_across_the_batch(one, two):
    x = one(torch.randn(6, 10, 8)).view(60, 12)
    x = x[torch.randperm(60)].view(6, 10, 12)
    return F.cross_entropy(two(x.mean(1)), _labels())


@losses(lambda: (nn.Linear(8, 12), nn.Linear(12, 4)))
def labels_of_frames_that_attend_to_their_own_video(one, two):
    frames = one(torch.randn(60, 8))
    videos = frames.view(6, 10, 12)
    seen = F.scaled_dot_product_attention(videos, videos, videos)
    return F.cross_entropy(two(seen.reshape(60, 12)), _labels(60))


@losses(lambda: (nn.Linear(8, 12), nn.Linear(12, 4)))
def the_same_put_together_otherwise(one, two):
    videos = torch.stack(one(torch.randn(60, 8)).split(10))
    seen = F.scaled_dot_product_attention(videos, videos, videos)
    return F.cross_entropy(two(seen).flatten(0, 1), _labels(60))


@losses(lambda: nn.Linear(12, 3))
def a_scale_of_the_loss__no_note(head):
    x = torch.randn(6, 12)
    loss = F.cross_entropy(head(x), torch.randint(0, 3, (6,)))
    return loss * x.std()


@losses(lambda: nn.Linear(12, 3))
def normalized_by_each_sample__no_note(head):
    x = torch.randn(6, 12)
    x = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
    return F.cross_entropy(head(x), torch.randint(0, 3, (6,)))


def documents_kept_apart__no_note():
    torch.manual_seed(0)
    tokens_of, places_of, head = nn.Embedding(19, 8), nn.Embedding(12, 8), nn.Linear(8, 19)
    mixed = nn.Linear(8, 24)
    places = torch.cat([torch.arange(5), torch.arange(6)]).expand(4, 11)
    document = torch.cat([torch.zeros(5), torch.ones(6)])
    allowed = torch.ones(11, 11).tril().bool() & (document[:, None] == document)

    def step():
        tokens = torch.randint(0, 19, (4, 12))
        x = tokens_of(tokens[:, :-1]) + places_of(places)
        query, key, value = mixed(x).chunk(3, -1)
        x = x + F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
        F.cross_entropy(head(x).flatten(0, 1), tokens[:, 1:].flatten()).backward()

    return step


def _graphs():
    return nn.Linear(5, 1), nn.Linear(5, 8), nn.Linear(8, 3)


@losses(_graphs)
def nodes_normalized_within_each_graph(gate, value, head):
    nodes, graph = torch.randn(20, 5), torch.arange(4).repeat_interleave(5)
    scores = gate(nodes).exp()
    shares = scores / torch.zeros(4, 1).index_add(0, graph, scores)[graph]
    pooled = torch.zeros(4, 8).index_add(0, graph, shares * value(nodes))
    return F.cross_entropy(head(pooled), torch.randint(0, 3, (4,)))


@losses(_graphs)
def features_of_each_node_share_a_softmax(gate, value, head):
    nodes, graph = torch.randn(20, 5), torch.arange(4).repeat_interleave(5)
    mixed = torch.softmax(value(nodes), dim=1)
    pooled = torch.zeros(4, 8).index_add(0, graph, mixed * gate(nodes))
    return F.cross_entropy(head(pooled), torch.randint(0, 3, (4,)))


@losses(_graphs)
def one_graph_whose_nodes_are_counted(gate, value, head):
    nodes, graph = torch.randn(20, 5), torch.zeros(20, dtype=torch.long)
    shares = torch.softmax(gate(nodes), dim=0)
    pooled = torch.zeros(1, 8).index_add(0, graph, shares * value(nodes))
    return F.cross_entropy(head(pooled), torch.randint(0, 3, (1,)))


def statistics_of_each_series__no_note():
    return _forecast(dims=(1,))


def statistics_of_a_series_with_positions_first__no_note():
    return _forecast(dims=(0,))


def batch_norm_by_hand__no_note():
    return _forecast(behind=lambda out, mean, std: out)


def targets_in_units_of_the_batch__no_note():
    return _forecast(behind=lambda out, mean, std: out - (torch.randn(6, 12, 3) - mean) / std)


@losses(lambda: nn.Linear(3, 3))
def batch_renormalization_by_hand__no_note(layer):
    x = layer(torch.randn(6, 12, 3))
    mean, std = x.mean(dim=(0, 1)), x.std(dim=(0, 1))
    ratio, shift = (std / 1.1).detach(), (mean / 1.1).detach()
    out = (x - mean) / std * ratio + shift
    return (out - torch.randn(6, 12, 3)).abs().mean()


def frames_first_and_the_last_one_read():
    return _in_frames(_FramesFirst(lambda out: out[-1]))


def frames_first_and_transposed():
    return _in_frames(_FramesFirst(lambda out: out.transpose(0, 1).reshape(6, 7, 8).mean(1)))


def frames_first_and_averaged_over_time():
    return _in_frames(_FramesFirst(lambda out: out.mean(0)))


def frames_first_and_centered_over_the_batch():
    return _in_frames(_FramesFirst(lambda out: (out - out.mean((0, 1))).mean(0)))


def rows_of_all_samples_transposed_to_time_first():
    layer, lstm, head = nn.Linear(5, 6), nn.LSTM(6, 8), nn.Linear(8, 3)

    def step():
        clips = torch.randn(4, 7, 5)
        frames = layer(clips.view(28, 5)).relu().view(4, 7, -1).transpose(0, 1)
        out, _ = lstm(frames)
        F.cross_entropy(head(out[-1]), torch.randint(0, 3, (4,))).backward()

    return step


def frames_first_in_front_of_a_batch_norm():
    norm = nn.BatchNorm1d(8)
    return _in_frames(_FramesFirst(lambda out: norm(out.permute(1, 2, 0)).mean(2)))


def channels_averaged_over_time_and_viewed_back__no_note():
    def loss_of(layer, attention, head, x, y):
        features = layer(x.reshape(42, 1, 20)).relu().mean(-1)
        tokens = features.reshape(6, 7, 8)
        out, _ = attention(tokens, tokens, tokens)
        return F.cross_entropy(head(out.mean(1)), y[:, 0])

    return _loaded(
        loss_of, nn.Conv1d(1, 8, 5), nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)
    )


def windows_of_each_sample_as_rows_of_the_loss__no_note():
    def loss_of(recurrent, head, x, y):
        return F.cross_entropy(head(recurrent(x)[0]).reshape(-1, 3), y.reshape(-1))

    return _loaded(loss_of, nn.LSTM(20, 4, batch_first=True), nn.Linear(4, 3))


def centered_over_the_samples_of_the_batch__no_note():
    def loss_of(recurrent, head, x, y):
        x = x - x.mean(0)
        return F.cross_entropy(head(recurrent(x)[0]).transpose(1, 2), y)

    return _loaded(loss_of, nn.LSTM(20, 4, batch_first=True), nn.Linear(4, 3))


def windows_of_one_recording_that_no_loader_gave__no_note():
    def loss_of(recurrent, head, x, y):
        x, y = x.flatten(0, 1), y.flatten()
        return F.cross_entropy(head(recurrent(x)[0]), y)

    return _loaded(loss_of, nn.LSTM(20, 4), nn.Linear(4, 3))


def crops_averaged_within_each_sample__no_note():
    def loss_of(layer, head, x, y):
        features = layer(x.flatten(0, 1)).relu()
        return F.cross_entropy(head(features.view(6, 7, 8).mean(1)), y[:, 0])

    return _loaded(loss_of, nn.Linear(20, 8), nn.Linear(8, 3))


def near_points_of_each_cloud__no_note():
    def search(points, cloud):
        apart = torch.cdist(points, points)
        apart = apart.masked_fill(cloud[:, None] != cloud, torch.inf)
        return apart.topk(3, largest=False).indices

    return _clouds(search)
