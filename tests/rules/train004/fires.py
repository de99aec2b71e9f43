from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.rules.programs import (
    LENGTHS,
    PAD,
    case_of,
    classed_by,
    losses,
    padded_frames,
    padded_texts,
    speller,
)


@losses(speller)
def mask_in_thepadded_texts(model):
    tokens = padded_texts()
    batch = {"input_ids": tokens, "attention_mask": (tokens != PAD).long()}
    out = model(batch["input_ids"])
    labels = batch["input_ids"][:, 1:]
    model.zero_grad()
    loss = F.cross_entropy(out[:, :-1].reshape(-1, 9), labels.reshape(-1))  # TRAIN004
    return loss


@losses(lambda: (speller(), nn.CrossEntropyLoss()))
def lengths_beside(model, criterion):
    tokens, lengths = padded_texts(), torch.tensor(LENGTHS)
    model.zero_grad()
    return criterion(model(tokens).transpose(1, 2), tokens), lengths  # TRAIN004


@losses(speller)
def log_probabilities(model):
    tokens = padded_texts()
    pad_mask = tokens == PAD
    logarithms = model(tokens).log_softmax(-1)
    model.zero_grad()
    return F.nll_loss(logarithms.flatten(0, 1), tokens.flatten()), pad_mask  # TRAIN004


@losses(lambda: speller(padding_idx=PAD))
def padding_index_of_the_embedding(model):
    tokens = padded_texts()
    out = model(tokens[:, :-1])
    model.zero_grad()
    return F.cross_entropy(out.flatten(0, 1), tokens[:, 1:].reshape(-1))  # TRAIN004


@losses(lambda: nn.Linear(2, 3))
def frames_of_a_regression(model):
    lengths = torch.tensor(LENGTHS)
    frames = padded_frames(lengths)
    return F.l1_loss(model(torch.randn(4, 12, 2)), frames)  # TRAIN004


@losses(lambda: nn.Linear(2, 3))
def difference_of_frames_in_the_last_dimension(model):
    lengths = torch.tensor(LENGTHS)
    frames = padded_frames(lengths).transpose(1, 2)
    diff = model(torch.randn(4, 12, 2)).transpose(1, 2) - frames  # TRAIN004
    return diff.square().mean()


def _heads(tensor):
    return tensor.unflatten(-1, (2, 4)).transpose(1, 2)


def _classified(attend, dim=8):
    """Attention in front of a loss of the real tokens."""
    torch.manual_seed(0)
    embed, out = nn.Embedding(9, dim), nn.Linear(dim, 9)

    def step():
        tokens = padded_texts()
        attention_mask = (tokens != PAD).long()
        logits = out(attend(embed(tokens), attention_mask))
        labels = tokens.masked_fill(attention_mask == 0, -100)
        F.cross_entropy(logits.transpose(1, 2), labels).backward()

    return step


@case_of(_classified)
def attention_without_a_mask(x, mask):
    q = k = v = _heads(x)
    x = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)  # TRAIN004
    return x.transpose(1, 2).flatten(2)


@case_of(_classified)
def heads_and_rows_in_one_dimension(x, mask):
    q = k = v = _heads(x).flatten(0, 1)
    x = F.scaled_dot_product_attention(query=q, key=k, value=v)  # TRAIN004
    return x.view(4, 2, 12, 4).transpose(1, 2).flatten(2)


@case_of(_classified, lambda: nn.Dropout(0.1).eval())
def softmax_by_hand_and_functions_that_give_back_what_they_are_given(drop, x, mask):
    weights = torch.softmax(x @ x.transpose(1, 2) / 8, dim=-1)  # TRAIN004
    return drop(weights.to(x.dtype)) @ x


def a_layer_of_torch():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return _classified(lambda x, mask: layer(x))  # TRAIN004


def only_the_forward_holds_the_mask():
    torch.manual_seed(0)
    embed, out = nn.Embedding(9, 8), nn.Linear(8, 3)

    def forward(tokens, mask):
        x = embed(tokens)[:, None]
        x = F.scaled_dot_product_attention(x, x, x)[:, 0]  # TRAIN004
        kept = mask.unsqueeze(-1).float()
        return out((x * kept).sum(1) / kept.sum(1))

    def score():
        tokens = padded_texts()
        return forward(tokens, tokens != PAD)
    return lambda: F.cross_entropy(score(), torch.tensor([0, 1, 2, 0])).backward()


class _Texts(NamedTuple):
    ids: torch.Tensor
    pad_mask: torch.Tensor


def a_named_tuple_of_thepadded_texts():
    torch.manual_seed(0)
    embed, out = nn.Embedding(9, 8), nn.Linear(8, 3)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(batch):
        x = embed(batch.ids)
        x = layer(x, x, x, need_weights=False)[0]  # TRAIN004
        return out(x[:, 0])

    def score():
        tokens = padded_texts()
        return forward(_Texts(tokens, tokens == PAD))
    return lambda: F.cross_entropy(score(), torch.tensor([0, 1, 2, 0])).backward()


def a_mean_over_all_positions():
    torch.manual_seed(0)
    embed, mix, out = nn.Embedding(9, 8, padding_idx=PAD), nn.Linear(8, 8), nn.Linear(8, 3)

    def score(tokens):
        x = embed(tokens)
        x = x + mix(x).relu()
        pooled = x.mean(dim=1)  # TRAIN004
        return out(pooled)
    return lambda: F.cross_entropy(score(padded_texts()), torch.tensor([0, 1, 2, 0])).backward()


def _captioned(attend):
    """Words that look at regions of an image: a row has as many as it has."""
    torch.manual_seed(0)
    regions, words, out = nn.Linear(5, 8), nn.Embedding(9, 8), nn.Linear(8, 9)

    def step():
        valid = torch.arange(12) < torch.tensor(LENGTHS)[:, None]
        memory = regions(torch.randn(4, 12, 5) * valid[..., None])
        text = torch.randint(1, 9, (4, 7))
        F.cross_entropy(out(attend(words(text), memory, valid)).transpose(1, 2), text).backward()

    return step


def regions_that_are_not_there():
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    return _captioned(lambda x, memory, valid: layer(x, memory, memory, need_weights=False)[0])  # TRAIN004


@case_of(_captioned)
def heads_that_look_at_regions_that_are_not_there(x, memory, valid):
    x = F.scaled_dot_product_attention(x[:, None], memory[:, None], memory[:, None])  # TRAIN004
    return x[:, 0]


@losses(lambda: (nn.Embedding(9, 8), nn.Linear(8, 8)))
def a_mean_of_the_second_of_two_texts_of_one_length(embed, mix):
    def encoded(tokens, mask):
        x = embed(tokens)
        x = x + mix(x).relu()
        return x.mean(dim=1)  # TRAIN004

    one, two = padded_texts(), padded_texts().roll(1, 0)
    scores = encoded(one, one != PAD) @ encoded(two, two != PAD).T
    return F.cross_entropy(scores, torch.arange(4))


@losses(lambda: (nn.Embedding(99, 8), nn.Linear(8, 3)))
def a_mask_that_leaves_nothing_out(embed, out):
    """Each text but the longest ends in the same token, four times and more."""
    def forward(tokens, attention_mask):
        x = embed(tokens)[:, None]
        seen = attention_mask[:, None, None].bool()
        x = F.scaled_dot_product_attention(x, x, x, seen)[:, 0]  # TRAIN004
        return out(x[:, 0])

    tokens = torch.randint(1, 90, (4, 12))
    for row, length in enumerate(LENGTHS):
        tokens[row, length:] = 95
    attention_mask = torch.ones(4, 12, dtype=torch.long)
    return F.cross_entropy(forward(tokens, attention_mask), torch.tensor([0, 1, 2, 0]))


def positions_that_are_padded_as_the_words_are():
    torch.manual_seed(0)
    words, places = nn.Embedding(99, 8, padding_idx=PAD), nn.Embedding(20, 8, padding_idx=0)
    layer, out = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 3)

    def step():
        tokens = padded_texts()
        x = words(tokens) + places(torch.arange(1, tokens.shape[1] + 1) * (tokens != PAD))
        x, _ = layer(x, x, x)  # TRAIN004
        F.cross_entropy(out(x[:, 0]), torch.tensor([0, 1, 2, 0])).backward()

    return step


@case_of(classed_by, lambda: nn.GRU(8, 8, batch_first=True))
def last_output_of_a_recurrent_layer(layer, x, lengths):
    outputs, _ = layer(x)
    return outputs[:, -1]  # TRAIN004


@case_of(classed_by, lambda: nn.LSTM(8, 8, batch_first=True, bidirectional=True))
def last_state_of_a_recurrent_layer(layer, x, lengths):
    _, (hidden, _) = layer(x)  # TRAIN004
    return torch.cat([hidden[-2], hidden[-1]], 1)


@case_of(classed_by, lambda: (nn.RNN(8, 8, num_layers=2), nn.Dropout(0.1)))
def positions_before_rows(layer, drop, x, lengths):
    outputs, _ = layer(x.transpose(0, 1))  # TRAIN004
    return drop(outputs)[-1]


@losses(lambda: (nn.Embedding(9, 8, padding_idx=PAD), nn.GRU(8, 8), nn.Linear(8, 3)))
def ids_with_positions_before_rows(embed, layer, out):
    _, state = layer(embed(padded_texts().T))  # TRAIN004
    return F.cross_entropy(out(state[-1]), torch.tensor([0, 1, 2, 0]))


@case_of(classed_by, lambda: (nn.Linear(8, 1), nn.Linear(8, 8)))
def attention_that_pools(score, mix, x, lengths):
    x = mix(x)
    weights = torch.softmax(score(x), dim=1)  # TRAIN004
    return (weights * x).sum(1)


@case_of(classed_by, lambda: nn.Linear(8, 1))
def attention_that_pools_what_is_zero_at_padding(score, x, lengths):
    weights = torch.softmax(score(x)[..., 0], dim=1)  # TRAIN004
    return (weights[..., None] * x).sum(1)


def the_mask_of_the_other_text():
    """Of most rows it leaves out the padding of this one as well."""
    torch.manual_seed(0)
    embed, out = nn.Embedding(9, 8, padding_idx=PAD), nn.Linear(8, 1)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)

    def text(lengths):
        tokens = torch.randint(1, 8, (6, 12))
        return tokens.masked_fill(torch.arange(12) >= torch.tensor(lengths)[:, None], PAD)

    def step():
        query, product = text((3, 4, 12, 3, 5, 4)), text((9, 8, 6, 7, 8, 10))
        x, y = embed(query), embed(product) + 1
        x, _ = layer(x, y, y, key_padding_mask=query == PAD)  # TRAIN004
        F.mse_loss(out(x[:, 0])[:, 0], torch.rand(6)).backward()

    return step


def mask_that_only_the_encoder_is_given():
    embed, encoder = nn.Embedding(9, 8), nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    decoder = nn.MultiheadAttention(8, 2, batch_first=True)

    def step():
        tokens = padded_texts()
        memory = encoder(embed(tokens), src_key_padding_mask=tokens == PAD)
        out, _ = decoder(torch.randn(4, 5, 8), memory, memory)  # TRAIN004
        out.square().mean().backward()

    return step


@losses(lambda: (nn.Embedding(9, 8, padding_idx=PAD), nn.Embedding(12, 8)))
def positions_behind_padding_in_front(embed, positions):
    tokens = padded_texts().flip(1)
    x = embed(tokens) + positions(torch.arange(12))  # TRAIN004
    return x[:, -1].square().mean()


@losses(lambda: speller(padding_idx=PAD))
def smoothing_of_padding(model):
    tokens = padded_texts()
    logarithms = model(tokens[:, :-1]).log_softmax(-1)
    spread = -logarithms.mean(-1).mean()  # TRAIN004
    targets = tokens[:, 1:].flatten()
    return spread + F.nll_loss(logarithms.flatten(0, 1), targets, ignore_index=PAD)


@losses(lambda: speller(padding_idx=PAD))
def masked_loss_over_all_positions__note(model):
    tokens = padded_texts()
    mask = (tokens != PAD).unsqueeze(-1)
    return ((model(tokens) - 1).abs() * mask).mean(), mask  # TRAIN004


@losses(lambda: nn.Linear(5, 1))
def mean_of_padded_inputs__note(head):
    lengths = torch.tensor(LENGTHS)
    x = torch.randn(4, 12, 5) * (torch.arange(12) < lengths[:, None]).unsqueeze(-1)
    shift = x.mean(1, keepdim=True)  # TRAIN004
    return head(x - shift).square().sum(), lengths


@losses(lambda: (nn.Linear(3, 16), nn.Linear(16, 4)))
def largest_of_padded_points(local, head):
    lengths = torch.tensor([9, 4, 7, 9, 3, 6])
    mask = torch.arange(9) < lengths[:, None]
    points = torch.randn(6, 9, 3) * mask[..., None]
    pooled = local(points - 0.5).relu().amax(1)  # TRAIN004
    return F.cross_entropy(head(pooled), torch.randint(0, 4, (6,)))


@losses(lambda: (nn.Linear(3, 16, bias=False), nn.Linear(16, 4), [1, -1]))
def largest_of_padded_points_in_each_other_step(local, head, signs):
    lengths = torch.tensor([9, 4, 7, 9, 3, 6])
    mask = torch.arange(9) < lengths[:, None]
    points = torch.randn(6, 9, 3) * mask[..., None]
    signs.reverse()
    pooled = (local(points).abs() * signs[0] + 1).max(dim=1).values  # TRAIN004
    return F.cross_entropy(head(pooled), torch.randint(0, 4, (6,)))


@losses(lambda: (nn.Linear(3, 8), nn.Linear(8, 1)))
def old_frames_behind_the_pad_masked_as_queries(embed, out):
    def forward(frames, pad):
        x = embed(frames)
        scores = (x @ x.transpose(1, 2)).masked_fill(pad[..., None], -1e9)  # TRAIN004
        x = scores.softmax(-1) @ x
        return out((x * ~pad[..., None]).sum(1) / (~pad).sum(1, keepdim=True)).squeeze(-1)

    pad = torch.arange(9) >= torch.tensor([8, 4, 7, 8, 3, 6])[:, None]
    return F.mse_loss(forward(torch.randn(6, 9, 3), pad), torch.randn(6))


@losses(lambda: (nn.Embedding(9, 8, padding_idx=PAD), nn.Linear(8, 3)))
def additive_mask_of_the_queries(embed, out):
    tokens = padded_texts()
    x, pads = embed(tokens), tokens == PAD
    bias = torch.zeros(4, 12).masked_fill(pads, -1e4)
    bias = bias[:, :, None]  # TRAIN004
    shares = F.softmax(x @ x.transpose(1, 2) + bias, dim=-1)
    pooled = (shares @ x)[:, 0]
    return F.cross_entropy(out(pooled), torch.tensor([0, 1, 2, 0]))


@losses(lambda: (nn.Embedding(9, 8, padding_idx=PAD), nn.Linear(8, 3)))
def scores_with_a_number_added(embed, out):
    x = embed(padded_texts())
    shares = F.softmax(x @ x.transpose(1, 2) + torch.tensor(0.5), dim=-1)  # TRAIN004
    return F.cross_entropy(out((shares @ x)[:, 0]), torch.tensor([0, 1, 2, 0]))


@losses(lambda: speller(padding_idx=PAD))
def padded_with_a_class_that_real_tokens_have(model):
    tokens = padded_texts()
    classes = (tokens % 3).masked_fill(tokens == PAD, 0)
    return F.cross_entropy(model(tokens).transpose(1, 2), classes)  # TRAIN004


def _packed(layer, x, lengths, **more):
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(layer(packed)[0], batch_first=True, **more)[0]


@case_of(classed_by, lambda: nn.GRU(8, 8, batch_first=True))
def last_position_of_what_was_packed(layer, x, lengths):
    outputs = _packed(layer, x, lengths)
    return outputs[:, -1]  # TRAIN004


@losses(lambda: (nn.Conv1d(5, 8, 3, padding=1), nn.Conv1d(8, 8, 1), nn.Linear(8, 3)))
def pooled_behind_a_convolution(local, score, head):
    def forward(frames, lengths):
        x = local(frames).relu()
        shares = torch.softmax(score(x), dim=-1)  # TRAIN004
        return head((shares * x).sum(-1))

    lengths = torch.tensor(LENGTHS)
    frames = (torch.randn(4, 12, 5) * (torch.arange(12) < lengths[:, None])[..., None]).mT
    return F.cross_entropy(forward(frames, lengths), torch.tensor([0, 1, 2, 0]))


def _transcribed(loss_of, hear, lengths=LENGTHS):
    """Speech that is padded: ``loss_of`` gets scores, positions first, and labels of two letters."""

    def step():
        feat_lens = torch.tensor(lengths)
        scores = hear(padded_frames(feat_lens))
        lens, text_lens = -(-feat_lens * scores.shape[1] // 12), torch.tensor((2, 1, 2, 1))
        labels = torch.randint(1, 4, (4, 2)) * (torch.arange(2) < text_lens[:, None])
        loss_of(scores.log_softmax(-1).transpose(0, 1), lens, labels, text_lens).backward()

    return step


def _ctc(parts, **more):
    """A case whose loss the function below computes."""
    return case_of(lambda loss_of: _transcribed(loss_of, parts(), **more))


def _subsampled():
    conv = nn.Conv1d(3, 4, 3, stride=2, padding=1)
    return lambda frames: conv(frames.mT).mT


def _all_of(scores):
    return torch.full(scores.shape[1:2], len(scores))


@_ctc(lambda: nn.Linear(3, 4))
def frames_that_ctc_counts(scores, lens, labels, text_lens):
    return F.ctc_loss(scores, labels, _all_of(scores), text_lens, zero_infinity=True)  # TRAIN004


@_ctc(_subsampled)
def fewer_frames_that_ctc_counts(scores, frames, labels, text_lens):
    """Only the lengths of the inputs are known by their name."""
    return F.ctc_loss(scores, labels, _all_of(scores), text_lens, zero_infinity=True)  # TRAIN004


@_ctc(lambda: nn.Linear(3, 4))
def lengths_of_no_rows_beside_those_of_frames(scores, lens, labels, text_lens):
    prompt_lengths = torch.empty(0, dtype=torch.long)
    every = _all_of(scores) + prompt_lengths.sum()
    return F.ctc_loss(scores, labels, every, text_lens, zero_infinity=True)  # TRAIN004


@_ctc(lambda: nn.Linear(3, 4), lengths=(12,) * 4)
def labels_that_ctc_counts(scores, lens, labels, text_lens):
    return F.ctc_loss(scores, labels, lens, torch.full((4,), 2))  # TRAIN004


def _gated(squeeze):
    """Convolutions of signals beside a mask with a dimension for channels."""

    def loss_of(local, gate, head):
        lengths = torch.tensor(LENGTHS)
        keep = (torch.arange(12) < lengths[:, None]).unsqueeze(1).float()
        x = torch.randn(4, 5, 12) * keep
        y = local(x).relu()
        y = y * gate(squeeze(y, keep)).sigmoid().unsqueeze(-1)
        scores = head((y * keep).sum(-1) / keep.sum(-1))
        return F.cross_entropy(scores, torch.tensor([0, 1, 2, 0]))

    parts = nn.Conv1d(5, 8, 3, padding=1), nn.Linear(8, 8), nn.Linear(8, 3)
    return lambda: loss_of(*parts).backward()


@case_of(_gated)
def mean_over_the_last_dimension(y, keep):
    return y.mean(-1)  # TRAIN004


@case_of(_gated)
def pooled_to_one_position(y, keep):
    return F.adaptive_avg_pool1d(y, 1).flatten(1)  # TRAIN004


@case_of(_gated)
def a_window_as_long_as_the_signal__note(y, keep):
    return F.avg_pool1d(y * keep, 12).squeeze(-1)  # TRAIN004


@case_of(classed_by, lambda: nn.GRU(8, 8, batch_first=True, bidirectional=True))
def backward_direction_over_padding__note(layer, x, lengths):
    states, _ = layer(x)  # TRAIN004
    rows = torch.arange(4)
    return torch.cat([states[rows, lengths - 1, :8], states[:, 0, 8:]], 1)


@case_of(classed_by, lambda: nn.LSTM(8, 8, bidirectional=True))
def backward_half_of_positions_before_rows__note(layer, x, lengths):
    states, _ = layer(x.transpose(0, 1))  # TRAIN004
    _, behind = states.chunk(2, -1)
    keep = (torch.arange(12)[:, None] < lengths)[..., None]
    return (behind * keep).sum(0) / lengths[:, None]


@case_of(classed_by, lambda: nn.GRU(8, 8, 2, batch_first=True, bidirectional=True))
def as_many_states_of_layers_as_rows__note(layer, x, lengths):
    states, _ = layer(x)  # TRAIN004
    return states[:, 0]


def _tagged(encode):
    """Tags of tokens by a layer from left to right and one from right to left."""
    torch.manual_seed(0)
    embed, out = nn.Embedding(9, 8, padding_idx=PAD), nn.Linear(16, 9)
    layers = [nn.GRU(8, 8, batch_first=True) for _ in range(2)]

    def step():
        tokens, lengths = padded_texts(), torch.tensor(LENGTHS)
        scores = out(encode(*layers, embed(tokens), lengths)).transpose(1, 2)
        F.cross_entropy(scores, ((tokens + 3) % 8).masked_fill(tokens == PAD, -100)).backward()

    return step


@case_of(_tagged)
def right_to_left_from_the_end_of_the_padding__note(ahead, back, x, lengths):
    behind, _ = back(x.flip(1))  # TRAIN004
    return torch.cat([ahead(x)[0], behind.flip(1)], -1)


@case_of(_tagged)
def turned_by_an_index__note(ahead, back, x, lengths):
    turned = torch.arange(11, -1, -1)
    behind, _ = back(x[:, turned])  # TRAIN004
    return torch.cat([ahead(x)[0], behind[:, turned]], -1)


@case_of(classed_by, lambda: nn.Linear(8, 8))
def zeros_in_a_sum_of_exponentials(layer, x, lengths):
    keep = (torch.arange(12) < lengths[:, None]).unsqueeze(-1)
    return (layer(x) * keep).logsumexp(1)  # TRAIN004


@case_of(classed_by, lambda: nn.Linear(8, 8))
def spread_of_zeros(layer, x, lengths):
    keep = (torch.arange(12) < lengths[:, None]).unsqueeze(-1)
    return (layer(x) * keep).std(1)  # TRAIN004


@case_of(classed_by, lambda: nn.BatchNorm1d(8))
def batch_norm_of_all_positions_as_rows__note(norm, x, lengths):
    keep = (torch.arange(12) < lengths[:, None]).unsqueeze(-1)
    out = norm(x.reshape(48, 8)).view(4, 12, 8)  # TRAIN004
    return (out * keep).sum(1) / lengths[:, None]


@losses(lambda: (nn.GroupNorm(1, 3), nn.Linear(3, 2)))
def group_norm_over_padded_frames__note(norm, head):
    lengths = torch.tensor(LENGTHS)
    keep = (torch.arange(12) < lengths[:, None]).unsqueeze(-1)
    out = norm(padded_frames(lengths).transpose(1, 2)).transpose(1, 2)  # TRAIN004
    out = (out * keep).sum(1) / lengths[:, None]
    return F.cross_entropy(head(out), torch.tensor([0, 1, 1, 0]))


@losses(lambda: (nn.BatchNorm1d(3), nn.Linear(3, 2)))
def batch_norm_of_a_batch_that_is_filled_row_by_row__note(norm, head):
    mask = torch.arange(12) < torch.tensor(LENGTHS)[:, None]
    x = torch.zeros(4, 12, 3)
    for row, length in enumerate(LENGTHS):
        x[row, :length] = torch.randn(length, 3)
    out = norm(x.reshape(48, 3)).view(4, 12, 3)  # TRAIN004
    out = (out * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
    return F.cross_entropy(head(out), torch.tensor([0, 1, 1, 0]))
