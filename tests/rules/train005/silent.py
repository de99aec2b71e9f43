import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import Decoder, losses


def _tokens(long=12):
    return torch.randint(0, 19, (4, long))


def _stepping(model, loss_of):
    return lambda: loss_of(model).backward()


def next_token_at_the_loss():
    def loss_of(model):
        tokens = _tokens()
        out = model(tokens)
        return F.cross_entropy(out[:, :-1].reshape(-1, 19), tokens[:, 1:].reshape(-1))

    return _stepping(Decoder(), loss_of)


def autoencoder_that_sees_the_whole_row():
    def loss_of(model):
        tokens = _tokens()
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    return _stepping(Decoder(causal=False), loss_of)


def inputs_shifted_inside_the_model():
    """A row begins with zeros: a position has not seen its own token."""

    def loss_of(model):
        tokens = _tokens()
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    return _stepping(Decoder(shifts=True), loss_of)


def each_position_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(19, 8), nn.Linear(8, 19))

    def loss_of(model):
        tokens = _tokens()
        return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())

    return _stepping(model, loss_of)


def several_tokens_ahead():
    """One head for the next token, one for that after it."""

    def loss_of(model):
        tokens = _tokens()
        one, two = model(tokens)
        first = F.cross_entropy(one[:, :-1].reshape(-1, 19), tokens[:, 1:].reshape(-1))
        return first + F.cross_entropy(two[:, :-2].reshape(-1, 19), tokens[:, 2:].reshape(-1))

    return _stepping(Decoder(heads=2), loss_of)


def rows_of_one_token():
    """It is its own next one."""

    def loss_of(model):
        tokens = torch.randint(0, 19, (4, 1)).expand(4, 13)
        return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return _stepping(Decoder(), loss_of)


def rows_that_repeat_two_tokens():
    def loss_of(model):
        tokens = torch.randint(0, 19, (4, 2)).repeat(1, 7)
        return F.cross_entropy(model(tokens[:, :12]).flatten(0, 1), tokens[:, 2:].flatten())

    return _stepping(Decoder(), loss_of)


def tags_that_are_nearly_the_tokens():
    def loss_of(model):
        tokens = _tokens()
        tags = tokens.clone()
        tags[0, 0] = (tags[0, 0] + 1) % 19
        return F.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())

    return _stepping(Decoder(), loss_of)


def hidden_tokens_of_a_causal_model():
    def loss_of(model):
        tokens = _tokens()
        hidden = torch.rand(tokens.shape) < 0.3
        hidden[0, 0] = True
        labels = tokens.masked_fill(~hidden, -100)
        return F.cross_entropy(
            model(tokens.masked_fill(hidden, 0)).flatten(0, 1), labels.flatten()
        )

    return _stepping(Decoder(), loss_of)


def decoder_that_writes_what_an_encoder_read():
    torch.manual_seed(0)
    tokens_of, head = nn.Embedding(19, 8), nn.Linear(8, 19)
    reading, writing = nn.GRU(8, 8, batch_first=True), nn.GRU(8, 8, batch_first=True)

    def step():
        tokens = _tokens()
        _, state = reading(tokens_of(tokens))
        out, _ = writing(tokens_of(F.pad(tokens, (1, -1))), state)
        F.cross_entropy(head(out).flatten(0, 1), tokens.flatten()).backward()

    return step


def encoder_that_reads_the_row_and_decoder_that_writes_it():
    torch.manual_seed(0)
    tokens_of, head = nn.Embedding(19, 8), nn.Linear(8, 19)
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(12)

    def step():
        tokens = _tokens(13)
        inputs, target = tokens[:, :-1], tokens[:, 1:]
        out = model(tokens_of(target), tokens_of(inputs), tgt_mask=mask)
        F.cross_entropy(head(out).view(-1, 19), target.reshape(-1)).backward()

    return step


@losses(lambda: (nn.Embedding(19, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 19)))
def words_behind_an_image_shifted_once(embed, body, head):
    tokens = torch.randint(0, 19, (4, 12))
    hidden, _ = body(torch.cat([torch.randn(4, 3, 8), embed(tokens)], 1))
    logits, labels = head(hidden)[:, 3:-1], tokens[:, 1:]
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
