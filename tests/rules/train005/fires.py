import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import Decoder, losses

IGNORED = -100


@losses(lambda: (Decoder(), nn.CrossEntropyLoss()))
def not_shifted_and_cut_off(model, criterion):
    tokens = torch.randint(0, 19, (4, 12))
    out = model(tokens)[:, :-1]
    return criterion(out.transpose(1, 2), tokens[:, :-1])  # TRAIN005


@losses(Decoder)
def shifted_by_the_batch_and_at_the_loss(model):
    def loss_of(logits, labels):
        following = F.pad(labels, (0, 1), value=IGNORED)[:, 1:].contiguous()  # TRAIN005
        return F.cross_entropy(logits.float().view(-1, 19), following.view(-1))

    tokens = torch.randint(0, 19, (4, 13))
    return loss_of(model(tokens[:, :-1]), tokens[:, 1:])


def shifted_twice_with_a_mask_of_floats():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    tokens_of, head = nn.Embedding(19, 8), nn.Linear(8, 19)
    mask = nn.Transformer.generate_square_subsequent_mask(12)

    def step():
        tokens = torch.randint(0, 19, (4, 13))
        labels = tokens[:, 1:].clone()
        labels[:, :3] = IGNORED
        out = head(layer(tokens_of(tokens[:, :-1]), src_mask=mask, is_causal=True))
        logits, labels = out[:, :-1].reshape(-1, 19), labels[:, 1:].reshape(-1)  # TRAIN005
        F.nll_loss(F.log_softmax(logits, -1), labels).backward()

    return step


@losses(lambda: (nn.Embedding(19, 8), nn.LSTM(8, 8), nn.Linear(8, 19)))
def recurrent_with_positions_first(tokens_of, layer, head):
    tokens = torch.randint(0, 19, (12, 4))
    out, _ = layer(tokens_of(tokens))
    return F.cross_entropy(head(out).view(-1, 19), tokens.reshape(-1))  # TRAIN005


def decoder_that_is_given_what_it_is_asked_for():
    torch.manual_seed(0)
    tokens_of, head = nn.Embedding(19, 8), nn.Linear(8, 19)
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(12)

    def step():
        tokens = torch.randint(0, 19, (4, 13))
        inputs, target = tokens[:, :-1], tokens[:, 1:]
        out = model(tokens_of(inputs), tokens_of(target), tgt_mask=mask)
        scores = F.log_softmax(head(out), dim=-1).view(-1, 19)
        F.nll_loss(scores, target.reshape(-1)).backward()  # TRAIN005

    return step


@losses(lambda: (nn.Embedding(19, 8), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 19)))
def words_behind_an_image(embed, body, head):
    """Rows of the image come before those of the words, and have no target."""
    tokens = torch.randint(0, 19, (4, 12))
    hidden, _ = body(torch.cat([torch.randn(4, 3, 8), embed(tokens)], 1))
    logits = head(hidden)[:, 3:]
    return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())  # TRAIN005


def _cross_entropy_of_texts(logits, labels):
    return F.cross_entropy(logits.reshape(-1, 19), labels.reshape(-1))


@losses(Decoder)
def shifted_by_the_batch_and_for_a_function(model):
    tokens = torch.randint(0, 19, (4, 13))
    logits, labels = model(tokens[:, :-1]), tokens[:, 1:]
    return _cross_entropy_of_texts(logits[:, :-1], labels[:, 1:])  # TRAIN005
