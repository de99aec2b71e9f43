import torch
from torch import nn
from torch.nn import functional as F


def _classified(loss_of, last=None, shape=(16,)):
    torch.manual_seed(0)
    layers = [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 5)]
    model = nn.Sequential(*layers, *([] if last is None else [last]))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        x = torch.randn(16, 4)
        optimizer.zero_grad()
        loss_of(model(x), (x.sum(1) > 0).long().view(shape)).backward()
        optimizer.step()

    return step


def softmax_as_the_last_layer():
    def loss_of(out, y):
        return F.cross_entropy(out, y)  # TRAIN002

    return _classified(loss_of, nn.Softmax(dim=1))


def softmax_in_the_step():
    criterion = nn.CrossEntropyLoss()

    def loss_of(out, y):
        probabilities = torch.softmax(out, dim=-1)
        return criterion(probabilities, y)  # TRAIN002

    return _classified(loss_of)


def softmax_of_a_sequence_in_another_form():
    def loss_of(out, y):
        shares = out.view(4, 4, 5).softmax(-1)
        return F.cross_entropy(shares.view(-1, 5), y.reshape(-1))  # TRAIN002

    return _classified(loss_of)


def cross_entropy_by_hand():
    def loss_of(out, y):
        logarithms = F.log_softmax(F.softmax(out, 1), 1)  # TRAIN002
        return -logarithms.gather(1, y[:, None]).mean()

    return _classified(loss_of)


def sigmoid_before_its_own_loss():
    def loss_of(out, y):
        shares = torch.sigmoid(out)
        return F.binary_cross_entropy_with_logits(shares, F.one_hot(y, 5).float())  # TRAIN002

    return _classified(loss_of)


def logarithm_left_out():
    def loss_of(out, y):
        return F.nll_loss(F.softmax(out, dim=1), y)  # TRAIN002

    return _classified(loss_of)


def scores_for_nll():
    def loss_of(out, y):
        return nn.NLLLoss()(out, y)  # TRAIN002

    return _classified(loss_of)


def probabilities_for_kl_div():
    def loss_of(out, y):
        wanted = torch.full((16, 5), 0.2)
        return F.kl_div(out.softmax(-1), wanted, reduction="batchmean")  # TRAIN002

    return _classified(loss_of)


def inside_the_model():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 5)

        def forward(self, x, y):
            shares = self.head(x).softmax(-1)
            return F.cross_entropy(shares, y)  # TRAIN002

    torch.manual_seed(0)
    model = Model()

    def step():
        x = torch.randn(16, 4)
        model.zero_grad()
        model(x, (x.sum(1) > 0).long()).backward()

    return step


def probabilities_that_are_floats_already():
    """``float`` gives back the tensor that it was given."""
    model = torch.nn.Linear(4, 5)

    def step():
        x = torch.randn(16, 4)
        shares = model(x).softmax(-1).float()
        torch.nn.functional.cross_entropy(shares, (x.sum(1) > 0).long()).backward()  # TRAIN002

    return step


def scores_for_ctc():
    torch.manual_seed(0)
    model, criterion = nn.Linear(4, 5), nn.CTCLoss()

    def step():
        out = model(torch.randn(3, 12, 4)).transpose(0, 1)
        texts, sizes = torch.randint(1, 5, (3, 4)), torch.tensor([4, 3, 2])
        criterion(out, texts, torch.full((3,), 12), sizes).backward()  # TRAIN002

    return step


def one_part_of_what_a_detector_joined():
    torch.manual_seed(0)
    model, criterion = nn.Linear(4, 6), nn.BCEWithLogitsLoss()

    def step():
        x = torch.randn(16, 4)
        raw = model(x)
        out = torch.cat([raw[:, :4].exp(), raw[:, 4:5].sigmoid(), raw[:, 5:].sigmoid()], 1)
        model.zero_grad()
        boxes = (out[:, :4] - 1.0).abs().mean()
        (boxes + criterion(out[:, 5:], (x[:, :1] > 0).float())).backward()  # TRAIN002

    return step
