import torch
from torch import nn
from torch.nn import functional as F

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
from tests.rules.train004.fires import _all_of, _ctc, _gated, _packed, _tagged


@losses(speller)
def padding_set_to_minus_100(model):
    tokens = padded_texts()
    attention_mask = tokens != PAD
    labels = tokens.masked_fill(~attention_mask, -100)
    return F.cross_entropy(model(tokens).transpose(1, 2), labels)


@losses(speller)
def masked_afterwards(model):
    tokens = padded_texts()
    mask = (tokens != PAD).float()
    each = F.cross_entropy(model(tokens).transpose(1, 2), tokens, reduction="none")
    return (each * mask).sum() / mask.sum()


@losses(speller)
def picked_before(model):
    tokens = padded_texts()
    mask = tokens != PAD
    return F.cross_entropy(model(tokens)[mask], tokens[mask])


@losses(speller)
def nothing_is_padded(model):
    tokens = torch.randint(1, 8, (4, 12))
    attention_mask = torch.ones_like(tokens)
    return F.cross_entropy(model(tokens).transpose(1, 2), tokens), attention_mask


@losses(speller)
def a_causal_mask_of_the_same_size(model):
    tokens = torch.randint(1, 8, (12, 12))
    mask = torch.ones(12, 12).tril()
    return F.cross_entropy(model(tokens).transpose(1, 2), tokens), mask


@losses(lambda: nn.Linear(12, 24))
def the_mask_is_the_target(model):
    mask = torch.zeros(4, 12, dtype=torch.long)
    mask[:, 8:] = 1
    return F.cross_entropy(model(torch.randn(4, 12)).view(4, 2, 12), mask)


@losses(speller)
def masked_language_model(model):
    """The mask says which tokens are hidden, here and there."""
    tokens = torch.randint(1, 8, (4, 12))
    mask = torch.rand(4, 12) < 0.3
    hidden = tokens.masked_fill(mask, 0)
    return F.cross_entropy(model(hidden).transpose(1, 2), tokens)


@losses(speller)
def lengths_of_something_else(model):
    tokens, prompt_lengths = torch.randint(1, 8, (4, 12)), torch.tensor([2, 3, 4, 5])
    return F.cross_entropy(model(tokens).transpose(1, 2), tokens), prompt_lengths


@losses(lambda: speller(padding_idx=PAD))
def padding_index_that_is_ignored_too(model):
    tokens = padded_texts()
    out = model(tokens[:, :-1]).transpose(1, 2)
    return F.cross_entropy(out, tokens[:, 1:], ignore_index=PAD)


@losses(lambda: speller(padding_idx=PAD))
def padding_index_as_the_last_word(model):
    """It ends each sentence, and no padding is fed."""
    tokens = torch.randint(1, 8, (4, 12))
    following = torch.cat([tokens[:, 1:], torch.full((4, 1), PAD)], 1)
    return F.cross_entropy(model(tokens).transpose(1, 2), following)


@losses(lambda: speller(padding_idx=PAD))
def padding_of_another_sequence(model):
    """A sentence is read; what is predicted of it is as long by chance."""
    return F.cross_entropy(model(padded_texts()).transpose(1, 2), torch.randint(0, 9, (4, 12)))


@losses(lambda: nn.Linear(2, 3))
def frames_weighed_by_their_mask(model):
    lengths = torch.tensor(LENGTHS)
    mask = (torch.arange(12) < lengths[:, None]).unsqueeze(-1)
    diff = (model(torch.randn(4, 12, 2)) - padded_frames(lengths)) ** 2
    return (diff * mask).sum() / (3 * mask.sum())


@losses(lambda: nn.Linear(2, 3))
def frames_picked_by_their_mask(model):
    lengths = torch.tensor(LENGTHS)
    mask = torch.arange(12) < lengths[:, None]
    diff = model(torch.randn(4, 12, 2)) - padded_frames(lengths)
    return diff[mask].square().mean()


@losses(lambda: nn.Linear(2, 3))
def frames_set_to_the_padding(model):
    lengths = torch.tensor(LENGTHS)
    frames = padded_frames(lengths)
    return F.mse_loss(model(torch.randn(4, 12, 2)) * (frames != 0), frames)


@losses(lambda: nn.Linear(2, 3))
def frames_that_go_on_behind_their_lengths(model):
    """The lengths are those of prompts."""
    prompt_lengths = torch.tensor(LENGTHS)
    return F.mse_loss(model(torch.randn(4, 12, 2)), torch.randn(4, 12, 3)), prompt_lengths


def _classified(attend):
    """Attention in front of a loss of the real tokens."""
    torch.manual_seed(0)
    embed, out = nn.Embedding(9, 8), nn.Linear(8, 9)

    def step():
        tokens = padded_texts()
        attention_mask = (tokens != PAD).long()
        logits = out(attend(embed(tokens), attention_mask))
        labels = ((tokens + 3) % 9).masked_fill(attention_mask == 0, -100)
        F.cross_entropy(logits.transpose(1, 2), labels).backward()

    return step


def _attended(x, seen=None, **more):
    x = x[:, None]
    return F.scaled_dot_product_attention(x, x, x, seen, **more)[:, 0]


@case_of(_classified)
def attention_with_a_mask(x, mask):
    return _attended(x, mask[:, None, None].bool())


@case_of(_classified)
def attention_with_a_mask_of_numbers(x, mask):
    return _attended(x, (1.0 - mask[:, None, None]) * -1e4)


@case_of(_classified)
def padding_behind_the_text_of_a_causal_model(x, mask):
    return _attended(x, is_causal=True)


@case_of(_classified)
def softmax_by_hand_with_a_mask(x, mask):
    scores = x @ x.transpose(1, 2)
    weights = scores.masked_fill(mask[:, None] == 0, -torch.inf).softmax(-1)
    return weights @ x


def a_layer_of_torch_with_a_mask():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return _classified(lambda x, mask: layer(x, src_key_padding_mask=mask == 0))


def a_causal_layer_of_torch():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    ahead = nn.Transformer.generate_square_subsequent_mask(12)
    return _classified(lambda x, mask: layer(x, src_mask=ahead, is_causal=True))


@losses(lambda: (nn.Embedding(12, 8), nn.Linear(8, 12)))
def probabilities_that_weigh_nothing(embed, out):
    """As many classes as positions."""
    tokens = padded_texts()
    attention_mask = (tokens != PAD).long()
    probabilities = out(embed(tokens)).softmax(-1)
    labels = tokens.masked_fill(attention_mask == 0, -100)
    return F.nll_loss(probabilities.log().transpose(1, 2), labels)


@losses(lambda: (nn.Embedding(9, 8, padding_idx=PAD), nn.Linear(8, 9)))
def two_texts_of_one_length(embed, out):
    """Nothing says whose padding attention over the second one should leave out."""
    source, target = padded_texts(), padded_texts().roll(1, 0)
    hidden = (target == PAD)[:, None, None]
    x = _attended(embed(target), ~hidden) + embed(source).mean(1)[:, None]
    labels = target.masked_fill(target == PAD, -100)
    return F.cross_entropy(out(x).transpose(1, 2), labels)


@losses(lambda: (nn.Embedding(9, 8), nn.Linear(8, 9)))
def all_texts_of_one_length(embed, out):
    tokens = torch.randint(1, 8, (4, 12))
    attention_mask = torch.ones_like(tokens)
    x = _attended(embed(tokens))
    return F.cross_entropy(out(x).transpose(1, 2), tokens), attention_mask


@case_of(_classified, lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))
def a_mask_for_each_head(layer, x, mask):
    hidden = (mask == 0)[:, None, None].expand(4, 2, 12, 12)
    return layer(x, src_mask=hidden.flatten(0, 1))


@case_of(_classified)
def attention_with_a_mask_in_rows_and_heads(x, mask):
    q = x.unflatten(-1, (2, 4)).transpose(1, 2).flatten(0, 1)
    seen = mask.bool()[:, None, None].expand(4, 2, 12, 12).flatten(0, 1)
    x = F.scaled_dot_product_attention(q, q, q, seen)
    return x.view(4, 2, 12, 4).transpose(1, 2).flatten(2)


@case_of(_classified)
def a_mask_that_is_written_over_afterwards(x, mask):
    seen = mask[:, None, None].bool()
    x = _attended(x, seen)
    seen.fill_(True)
    return x


@losses(lambda: (nn.Embedding(9, 8), nn.Linear(8, 9)))
def a_mask_that_leaves_out_what_begins_each_text(embed, out):
    def forward(tokens, loss_mask):
        return (out(_attended(embed(tokens))).square().mean(-1) * loss_mask).mean()

    tokens = torch.randint(0, 8, (4, 12))
    tokens[:, 0] = PAD
    return forward(tokens, (tokens != PAD).float())


@losses(lambda: (nn.Embedding(9, 8), nn.Linear(8, 9)))
def a_mask_of_answers_behind_questions_of_many_lengths(embed, out):
    def forward(tokens, answer_mask):
        return (out(_attended(embed(tokens))).square().mean(-1) * answer_mask).mean()

    tokens = torch.randint(0, 8, (4, 12))
    begins = torch.tensor([3, 5, 4, 8])
    return forward(tokens, (torch.arange(12) >= begins[:, None]).float())


def _pooled(pool):
    torch.manual_seed(0)
    embed, mix, out = nn.Embedding(9, 8, padding_idx=PAD), nn.Linear(8, 8), nn.Linear(8, 3)

    def step():
        tokens = padded_texts()
        x = embed(tokens)
        F.cross_entropy(out(pool(x, mix, tokens != PAD)), torch.tensor([0, 1, 2, 0])).backward()

    return step


def a_mean_over_the_share_that_is_real__no_note():
    return _pooled(
        lambda x, mix, keep: (x + mix(x)).mul(keep[..., None]).mean(1) / keep.float().mean(1)[:, None]
    )


def a_sum_of_what_is_zero_at_padding__no_note():
    return _pooled(lambda x, mix, keep: x.sum(dim=1))


@case_of(_pooled)
def a_mean_over_features(x, mix, keep):
    weights = (mix(x).mean(dim=2, keepdim=True)).masked_fill(~keep[..., None], -1e9)
    return (weights.softmax(1) * x).sum(1)


@losses(lambda: (nn.Embedding(9, 8, padding_idx=PAD), nn.Linear(8, 12 * 8), nn.Linear(8, 3)))
def a_mean_of_what_comes_of_no_text(embed, table, out):
    """Of its shape by chance."""
    first = embed(padded_texts())[:, 0]
    x = table(torch.rand(4, 8)).view(4, 12, 8)
    return F.cross_entropy(out(x.mean(1) + first), torch.tensor([0, 1, 2, 0]))


def _captioned(attend):
    torch.manual_seed(0)
    regions, words, out = nn.Linear(5, 8), nn.Embedding(9, 8), nn.Linear(8, 9)

    def step():
        valid = torch.arange(12) < torch.tensor(LENGTHS)[:, None]
        seen = torch.randn(4, 12, 5)
        text = torch.randint(1, 9, (4, 7))
        x = attend(words(text), regions(seen), regions(seen * valid[..., None]), valid)
        F.cross_entropy(out(x).transpose(1, 2), text).backward()

    return step


@case_of(_captioned, lambda: nn.MultiheadAttention(8, 2, batch_first=True))
def regions_with_a_mask(layer, x, seen, padded, valid):
    return layer(x, padded, padded, key_padding_mask=~valid, need_weights=False)[0]


@case_of(_captioned)
def heads_that_look_at_regions_with_a_mask(x, seen, padded, valid):
    x, padded = x[:, None], padded[:, None]
    return F.scaled_dot_product_attention(x, padded, padded, valid[:, None, None])[:, 0]


def a_bool_that_leaves_out_regions_which_are_there():
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    return _captioned(lambda x, seen, padded, valid: layer(x, seen, seen, need_weights=False)[0])


@losses(lambda: (nn.Embedding(9, 8), nn.Linear(8, 9)))
def a_bool_that_leaves_out_words(embed, out):
    def forward(tokens, early):
        return (out(_attended(embed(tokens))).square().mean(-1) * early).mean()

    tokens = torch.randint(0, 8, (4, 12))
    return forward(tokens, torch.arange(12) < torch.tensor([3, 5, 4, 8])[:, None])


@losses(lambda: (nn.Embedding(9, 8, padding_idx=PAD), nn.Linear(8, 9)))
def a_text_without_padding_beside_one_of_its_shape(embed, out):
    """The other one's padding is none of its own."""
    source, target = padded_texts(), torch.randint(0, 8, (4, 12))
    x = _attended(embed(target)) + embed(source)[:, :1]
    labels = target + 0 * source
    return F.cross_entropy(out(x).transpose(1, 2), labels)


def _of_the_first(embed, out, tokens, attention_mask):
    x = embed(tokens)[:, None]
    x = F.scaled_dot_product_attention(x, x, x, attention_mask[:, None, None].bool())[:, 0]
    return F.cross_entropy(out(x[:, 0]), torch.tensor([0, 1, 2, 0]))


@losses(lambda: (nn.Embedding(99, 8), nn.Linear(8, 3)))
def texts_that_end_in_a_few_full_stops(embed, out):
    """With a mask that leaves nothing out, since nothing is padded."""
    tokens = torch.randint(1, 90, (4, 12))
    for row, stops in enumerate((0, 1, 2, 3)):
        tokens[row, 12 - stops :] = 95
    attention_mask = torch.ones(4, 12, dtype=torch.long)
    return _of_the_first(embed, out, tokens, attention_mask)


@losses(lambda: (nn.Embedding(99, 8), nn.Linear(8, 3)))
def a_mask_of_ones_over_texts_of_one_length(embed, out):
    """All end in the same tokens."""
    tokens = torch.randint(1, 90, (4, 12))
    tokens[:, 7:] = 95
    attention_mask = torch.ones(4, 12, dtype=torch.long)
    return _of_the_first(embed, out, tokens, attention_mask)


@losses(lambda: (nn.Embedding(99, 8), nn.Linear(8, 3)))
def a_mask_of_something_else_over_texts_that_end_in_one_token(embed, out):
    """It leaves words in the middle out: nothing says that those at the ends are padding."""
    tokens = torch.randint(1, 90, (4, 12))
    for row, length in enumerate((12, 8, 6, 7)):
        tokens[row, length:] = 95
    attention_mask = torch.ones(4, 12, dtype=torch.long)
    attention_mask[:, 2:4] = 0
    return _of_the_first(embed, out, tokens, attention_mask)


def output_at_the_length_of_each_row():
    layer = nn.GRU(8, 8, batch_first=True)
    return classed_by(lambda x, lengths: layer(x)[0][torch.arange(4), lengths - 1])


@case_of(classed_by, lambda: nn.LSTM(8, 8, batch_first=True, bidirectional=True))
def gathered_at_the_length_of_each_row(layer, x, lengths):
    index = (lengths - 1)[:, None, None].expand(4, 1, 16)
    return layer(x)[0].gather(1, index)[:, 0]


@case_of(classed_by, lambda: nn.GRU(8, 8, batch_first=True))
def packed_sequences(layer, x, lengths):
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
    return layer(packed)[1][-1]


@case_of(classed_by, lambda: nn.GRU(8, 8, batch_first=True, bidirectional=True))
def masked_mean_of_a_recurrent_layer(layer, x, lengths):
    keep = (torch.arange(12) < lengths[:, None])[..., None]
    return (layer(x)[0] * keep).sum(1) / lengths[:, None]


@losses(
    lambda: (nn.Embedding(9, 8, padding_idx=PAD), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 3))
)
def padding_in_front_of_a_recurrent_layer(embed, layer, out):
    """It is forgotten: the last state is that of the text's end."""
    outputs, state = layer(embed(padded_texts().flip(1)))
    return F.cross_entropy(out(outputs[:, -1] + state[-1]), torch.tensor([0, 1, 2, 0]))


def each_output_of_a_recurrent_layer():
    """A text of tags: the outputs at padding are left out."""
    layer = nn.GRU(8, 8, batch_first=True, bidirectional=True)
    return _classified(lambda x, mask: layer(x)[0][..., :8])


@case_of(_classified, lambda: (nn.GRU(8, 8, batch_first=True), [None]))
def a_state_that_goes_into_the_next_step(layer, state, x, mask):
    x, hidden = layer(x, state[0])
    state[0] = hidden.detach()
    return x


def a_bag_of_words():
    """The embedding of padding is zero."""
    return classed_by(lambda x, lengths: x.sum(1))


@case_of(classed_by, lambda: (nn.Linear(8, 1), nn.Linear(8, 8)))
def attention_that_pools_with_a_mask(score, mix, x, lengths):
    x, keep = mix(x), (torch.arange(12) < lengths[:, None])[..., None]
    weights = score(x).masked_fill(~keep, -torch.inf).softmax(dim=1)
    return (weights * x).sum(1)


@case_of(_classified)
def attention_by_einsum_with_a_mask(x, mask):
    scores = torch.einsum("bqd,bkd->bqk", x, x).masked_fill(mask[:, None] == 0, -torch.inf)
    return torch.einsum("bqk,bkd->bqd", scores.softmax(-1), x)


def a_maximum_over_positions():
    """Padding is one of many values, seldom the largest."""
    mix = nn.Conv1d(8, 8, 3, padding=1)
    return classed_by(lambda x, lengths: mix(x.transpose(1, 2)).relu().amax(2))


@losses(lambda: (nn.GRU(3, 8), nn.Linear(8, 3)))
def sorted_frames_with_positions_before_rows(layer, out):
    def encode(frames, lengths):
        outputs, _ = layer(frames)
        return outputs[lengths - 1, torch.arange(4)]

    lengths = torch.tensor(LENGTHS).sort(descending=True).values
    scores = out(encode(padded_frames(lengths).transpose(0, 1), lengths))
    return F.cross_entropy(scores, torch.tensor([0, 1, 2, 0]))


@case_of(classed_by, lambda: (nn.Linear(8, 1), nn.Linear(8, 8)))
def attention_that_pools_by_a_product_with_a_mask(score, mix, x, lengths):
    x, keep = mix(x), torch.arange(12) < lengths[:, None]
    weights = score(x).squeeze(-1).masked_fill(~keep, -1e9).softmax(1)
    return torch.bmm(weights.unsqueeze(1), x).squeeze(1)


@losses(lambda: (nn.Linear(3, 16), nn.Linear(16, 4)))
def largest_of_padding_that_is_as_small_as_a_unit_that_is_off(local, head):
    """The gradient of a maximum lies on all positions that are as large."""
    mask = torch.arange(9) < torch.tensor([9, 4, 7, 9, 3, 6])[:, None]
    points = torch.randn(6, 9, 3) * mask[..., None]
    pooled = ((local(points) - 0.9).relu() * mask[..., None] - 1).amax(1)
    return F.cross_entropy(head(pooled), torch.randint(0, 4, (6,)))


@losses(lambda: (nn.Linear(3, 8), nn.Linear(8, 1)))
def frames_behind_a_mask(embed, out):
    def forward(frames, valid):
        x = embed(frames)
        weights = (x @ x.transpose(1, 2)).masked_fill(~valid[:, None], -1e4).softmax(-1)
        return out(weights @ x).squeeze(-1) * valid

    lengths = torch.tensor((7, 3, 6, 2))
    valid = torch.arange(12) < lengths[:, None]
    return F.mse_loss(forward(padded_frames(lengths), valid), torch.randn(4, 12) * valid)


def dropout_that_is_off_in_front_of_the_last_output():
    """It gives back what it is given."""
    layer, drop = nn.GRU(8, 8, batch_first=True), nn.Dropout(0.5).eval()
    return classed_by(lambda x, lengths: drop(layer(x)[0])[torch.arange(4), lengths - 1])


@losses(lambda: (nn.Embedding(9, 8, padding_idx=PAD), nn.Embedding(12, 8)))
def positions_of_real_tokens__no_note(embed, positions):
    tokens = padded_texts().flip(1)
    counted = ((tokens != PAD).cumsum(1) - 1).clamp(min=0)
    return (embed(tokens) + positions(counted))[:, -1].square().mean()


@losses(lambda: (nn.Linear(3, 16), nn.Linear(16, 4)))
def largest_of_points_that_are_masked(local, head):
    lengths = torch.tensor([9, 4, 7, 9, 3, 6])
    mask = torch.arange(9) < lengths[:, None]
    points = torch.randn(6, 9, 3) * mask[..., None]
    pooled = local(points).masked_fill(~mask[..., None], -1e9).max(1).values
    return F.cross_entropy(head(pooled), torch.randint(0, 4, (6,)))


@losses(lambda: (nn.Linear(3, 8), nn.Linear(8, 1)))
def old_frames_behind_the_pad_kept_out_by_a_mask(embed, out):
    def forward(frames, pad):
        x = embed(frames)
        scores = (x @ x.transpose(1, 2)).masked_fill(pad[:, None], -1e9)
        x = scores.softmax(-1) @ x
        return out((x * ~pad[..., None]).sum(1) / (~pad).sum(1, keepdim=True)).squeeze(-1)

    pad = torch.arange(9) >= torch.tensor([8, 4, 7, 8, 3, 6])[:, None]
    return F.mse_loss(forward(torch.randn(6, 9, 3), pad), torch.randn(6))


def masked_sum_of_weights_that_became_nan():
    torch.manual_seed(0)
    embed, out = nn.Embedding(9, 8, padding_idx=PAD), nn.Linear(8, 3)
    embed.weight.data[:] = float("nan")

    def step():
        tokens = padded_texts()
        keep = (tokens != PAD).unsqueeze(-1).float()
        mean = (embed(tokens) * keep).sum(1) / keep.sum(1)
        F.cross_entropy(out(mean), torch.tensor([0, 1, 2, 0])).backward()

    return step


def _ended_alike(source, ends):
    torch.manual_seed(0)
    model, end = speller(), 7

    def step():
        lengths = torch.tensor(source)
        given = torch.randint(0, end, (4, 12))
        targets = torch.cat([given[:, ends:], torch.full((4, ends), end)], 1)
        F.cross_entropy(model(given).flatten(0, 1), targets.flatten()).backward()
        return lengths

    return step


def lengths_of_the_source_beside_targets_that_end_alike():
    return _ended_alike((12, 11, 12, 11), ends=1)


def what_ends_every_row():
    return _ended_alike((11, 11, 11, 11), ends=1)


def lengths_of_the_source_beside_a_text_without_padding():
    return _ended_alike((12, 9, 12, 9), ends=3)


@losses(lambda: speller(padding_idx=PAD))
def classes_of_real_tokens_alone__no_note(model):
    tokens = padded_texts()
    classes = (tokens % 3).masked_fill(tokens == PAD, -100)
    return F.cross_entropy(model(tokens).transpose(1, 2), classes)


@losses(lambda: speller(padding_idx=PAD))
def ends_that_are_hidden_and_asked_for__no_note(model):
    tokens = torch.randint(1, 8, (4, 12))
    hidden = torch.arange(12) >= torch.tensor(LENGTHS)[:, None]
    return F.cross_entropy(model(tokens.masked_fill(hidden, PAD)).transpose(1, 2), tokens)


@losses(lambda: speller(padding_idx=PAD))
def the_index_stands_inside_of_texts__no_note(model):
    tokens = torch.randint(1, 8, (4, 12)).masked_fill(torch.rand(4, 12) < 0.3, PAD)
    classes = (tokens % 3).masked_fill(tokens == PAD, 0)
    return F.cross_entropy(model(tokens).transpose(1, 2), classes)


@losses(lambda: speller(padding_idx=PAD))
def a_class_of_each_text__no_note(model):
    tokens = padded_texts()
    return F.cross_entropy(model(tokens)[:, 0], torch.tensor([0, 1, 0, 0]))


@case_of(classed_by, lambda: nn.GRU(8, 8, batch_first=True))
def positions_of_what_was_packed_one_by_one__no_note(layer, x, lengths):
    outputs = _packed(layer, x, lengths)
    each = [outputs[:, place] * (place < lengths)[:, None] for place in range(12)]
    return torch.stack(each).sum(0)


@case_of(classed_by, lambda: nn.GRU(8, 8, batch_first=True))
def last_real_position_of_what_was_packed__no_note(layer, x, lengths):
    return _packed(layer, x, lengths)[torch.arange(4), lengths - 1]


@case_of(classed_by, lambda: nn.GRU(8, 8, batch_first=True))
def last_position_of_whole_rows_that_were_packed__no_note(layer, x, lengths):
    return _packed(layer, x, torch.full((4,), 12))[:, -1]


@case_of(classed_by, lambda: nn.GRU(8, 8, batch_first=True))
def first_position_of_what_was_packed__no_note(layer, x, lengths):
    return _packed(layer, x, lengths)[:, 0]


@losses(lambda: (nn.Conv1d(5, 8, 3, padding=1), nn.Conv1d(8, 8, 1), nn.Linear(8, 3)))
def pooled_by_a_mask_behind_a_convolution__no_note(local, score, head):
    def forward(frames, lengths):
        x = local(frames).relu()
        real = torch.arange(12) < lengths[:, None, None]
        shares = torch.softmax(score(x).masked_fill(~real, -torch.inf), dim=-1)
        return head((shares * x).sum(-1))

    lengths = torch.tensor(LENGTHS)
    frames = (torch.randn(4, 12, 5) * (torch.arange(12) < lengths[:, None])[..., None]).mT
    return F.cross_entropy(forward(frames, lengths), torch.tensor([0, 1, 2, 0]))


@losses(lambda: (nn.Conv1d(5, 8, 3, padding=1), nn.Conv1d(8, 8, 1), nn.Linear(8, 3)))
def shares_of_channels_behind_a_convolution__no_note(local, score, head):
    def forward(frames, lengths):
        x = local(frames).relu()
        x = x * torch.softmax(score(x), dim=1)
        real = torch.arange(12) < lengths[:, None, None]
        return head((x * real).sum(-1) / lengths[:, None])

    lengths = torch.tensor(LENGTHS)
    frames = (torch.randn(4, 12, 5) * (torch.arange(12) < lengths[:, None])[..., None]).mT
    return F.cross_entropy(forward(frames, lengths), torch.tensor([0, 1, 2, 0]))


@_ctc(lambda: nn.Linear(3, 4))
def frames_that_ctc_is_told__no_note(scores, lens, labels, text_lens):
    return F.ctc_loss(scores, labels, lens, text_lens, zero_infinity=True)


@_ctc(lambda: nn.Linear(3, 4), lengths=(12,) * 4)
def frames_of_rows_of_one_length__no_note(scores, lens, labels, text_lens):
    return F.ctc_loss(scores, labels, _all_of(scores), text_lens)


@losses(lambda: nn.Linear(3, 4))
def frames_of_images_that_nothing_says_to_be_padded__no_note(hear):
    text_lens = torch.tensor((2, 1, 2, 1))
    scores = hear(padded_frames(torch.tensor(LENGTHS))).log_softmax(-1).transpose(0, 1)
    labels = torch.randint(1, 4, (4, 2))
    return F.ctc_loss(scores, labels, _all_of(scores), text_lens, zero_infinity=True)


@case_of(_gated)
def mean_of_real_positions_of_a_signal__no_note(y, keep):
    return (y * keep).sum(-1) / keep.sum(-1)


@case_of(_gated)
def pooled_and_divided_by_the_share_that_is_real__no_note(y, keep):
    return F.adaptive_avg_pool1d(y * keep, 1).flatten(1) / keep.mean(-1)


@case_of(_gated)
def pooled_times_positions_by_the_lengths__no_note(y, keep):
    return F.adaptive_avg_pool1d(y * keep, 1).squeeze(-1) * 12 / keep.sum(-1)


@case_of(_gated)
def every_second_position_of_a_signal__no_note(y, keep):
    half = F.avg_pool1d(y * keep, 2)
    return half.sum(-1) / keep.sum(-1)


@losses(lambda: (nn.Conv1d(5, 8, 3), nn.Linear(8, 3)))
def causal_convolution_at_the_last_real_position__no_note(local, head):
    lengths = torch.tensor(LENGTHS)
    x = torch.randn(4, 5, 12) * (torch.arange(12) < lengths[:, None])[:, None]
    y = local(F.pad(x, (2, 0))).relu()
    return F.cross_entropy(head(y[torch.arange(4), :, lengths - 1]), torch.tensor([0, 1, 2, 0]))


def _both_ways(**more):
    return nn.GRU(8, 8, batch_first=True, bidirectional=True, **more)


@case_of(classed_by, _both_ways)
def both_directions_over_what_is_packed__no_note(layer, x, lengths):
    states = _packed(layer, x, lengths)
    return torch.cat([states[torch.arange(4), lengths - 1, :8], states[:, 0, 8:]], 1)


@case_of(classed_by, _both_ways)
def forward_half_of_both_directions__no_note(layer, x, lengths):
    states, _ = layer(x)
    ahead, _ = states.chunk(2, -1)
    return ahead[torch.arange(4), lengths - 1] + states[:, 0, :8]


@case_of(classed_by, lambda: _both_ways(bias=False))
def zeros_that_leave_a_state_at_zero__no_note(layer, x, lengths):
    states, _ = layer(x)
    return states[:, 0]


@losses(lambda: (nn.Embedding(9, 8, padding_idx=PAD), _both_ways(), nn.Linear(16, 9)))
def both_directions_over_rows_of_one_length__no_note(embed, layer, out):
    tokens = torch.randint(0, 8, (4, 12))
    states, _ = layer(embed(tokens))
    return F.cross_entropy(out(states).transpose(1, 2), tokens)


@losses(lambda: (nn.Embedding(9, 8, padding_idx=PAD), _both_ways(), nn.Linear(16, 3)))
def both_directions_behind_padding_in_front__no_note(embed, layer, out):
    states, _ = layer(embed(padded_texts().flip(1)))
    return F.cross_entropy(out(states[:, -1]), torch.tensor([0, 1, 2, 0]))


@case_of(_tagged)
def each_row_turned_within_its_length__no_note(ahead, back, x, lengths):
    places = torch.arange(12)
    turned = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
    turned = turned[..., None].expand(4, 12, 8)
    return torch.cat([ahead(x)[0], back(x.gather(1, turned))[0].gather(1, turned)], -1)


@case_of(_tagged)
def turned_twice__no_note(ahead, back, x, lengths):
    return torch.cat([ahead(x)[0], back(x.flip(1).flip(1))[0]], -1)


@losses(lambda: nn.Linear(6, 1))
def one_value_for_each_sample_beside_lengths(model):
    x, lengths = torch.randn(4, 6), torch.tensor([2, 3, 4, 6])
    return F.mse_loss(model(x).squeeze(1), lengths.float())


@case_of(classed_by, lambda: nn.Linear(8, 8))
def nothing_of_padding_in_a_sum_of_exponentials__no_note(layer, x, lengths):
    padding = (torch.arange(12) >= lengths[:, None]).unsqueeze(-1)
    return layer(x).masked_fill(padding, float("-inf")).logsumexp(1)


@case_of(classed_by, lambda: nn.BatchNorm1d(8))
def batch_norm_of_real_positions__no_note(norm, x, lengths):
    keep = torch.arange(12) < lengths[:, None]
    out = torch.zeros_like(x)
    out[keep] = norm(x[keep])
    return out.sum(1) / lengths[:, None]


@case_of(classed_by, lambda: nn.BatchNorm1d(8).eval())
def batch_norm_by_statistics_of_before__no_note(norm, x, lengths):
    keep = (torch.arange(12) < lengths[:, None]).unsqueeze(-1)
    out = norm(x.reshape(48, 8)).view(4, 12, 8)
    return (out * keep).sum(1) / lengths[:, None]
