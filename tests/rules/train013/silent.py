import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import losses


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x, mask):
        return self.inner(x)


class Second(First):
    def forward(self, x, mask):
        return super().forward(x, mask).masked_fill(~mask[..., None], 0)


def _mask():
    return torch.arange(10) < torch.randint(1, 10, (6,))[:, None]


def _trained(model, batch):
    batches = [batch() for _ in range(40)]
    return lambda: model(*batches.pop()).square().mean().backward()


def another_layer_reads_the_mask():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([First(), Second()])

        def forward(self, x, mask):
            for layer in self.layers:
                x = layer(x, mask)
            return x

    return _trained(Both(), lambda: (torch.randn(6, 10, 8), _mask()))


def the_mask_is_all_true():
    return _trained(First(), lambda: (torch.randn(6, 10, 8), torch.ones(6, 10).bool()))


def deleted_on_purpose():
    class Deletes(First):
        def forward(self, x, mask):
            del mask
            return self.inner(x)

    return _trained(Deletes(), lambda: (torch.randn(6, 10, 8), _mask()))


def named_as_unused():
    class Unused(First):
        def forward(self, x, _mask):
            return self.inner(x)

    return _trained(Unused(), lambda: (torch.randn(6, 10, 8), _mask()))


def the_model_makes_the_mask_itself():
    class Makes(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(9, 8)

        def forward(self, ids, attention_mask):
            return self.embedding(ids) * ids.ne(0)[..., None]

    def batch():
        mask = _mask()
        return torch.randint(1, 9, (6, 10)) * mask, mask

    return _trained(Makes(), batch)


def lengths_beside_the_mask():
    class Takes(First):
        def forward(self, x, mask, lengths):
            return self.inner(x) * mask[..., None]

    def batch():
        mask = _mask()
        return torch.randn(6, 10, 8), mask, mask.sum(1)

    return _trained(Takes(), batch)


def the_host_read_it_before():
    class Takes(First):
        def forward(self, x, lengths):
            return self.inner(x)

    model = Takes()

    def step():
        lengths = torch.randint(1, 10, (6,))
        x = torch.randn(6, int(lengths.max()), 8)
        model(x, lengths.to("cpu", copy=True)).square().mean().backward()

    return step


def the_target_is_for_the_loss():
    class Takes(First):
        def forward(self, x, target):
            return self.inner(x)

    model = Takes()

    def step():
        x, target = torch.randn(6, 8), torch.randn(6, 8)
        F.mse_loss(model(x, target), target).backward()

    return step


@losses(lambda: nn.Linear(8, 8))
def a_hook_of_a_tensor(model):
    def counted(grad):
        return None

    out = model(torch.randn(6, 8))
    out.register_hook(counted)
    return out.square().mean()


@losses(lambda: (nn.Linear(8, 8), [(torch.randn(6, 8), torch.arange(6)) for _ in range(40)]))
def numbers_that_the_loss_does_not_need(model, batches):
    x, index = batches.pop()
    return model(x).square().mean()


def read_by_an_inner_function():
    model = nn.Linear(8, 8)

    def loss(out, weight):
        def weighted():
            return (out.square() * weight).mean()

        return weighted()
    return lambda: loss(model(torch.randn(6, 8)), torch.rand(6, 1)).backward()


@losses(lambda: nn.Linear(8, 8))
def a_slice_is_a_view(model):
    out = model(torch.randn(6, 8)) * 1
    out[:2].zero_()
    return out.square().mean()


@losses(lambda: nn.Linear(8, 8))
def a_copy_that_is_kept(model):
    out = model(torch.randn(6, 8))
    some = out[[0, 2]]
    some.clamp_(min=0)
    return some.square().mean()


def positions_of_one_segment():
    head = nn.Embedding(4, 4)
    return lambda: head(torch.arange(6) // 8).square().mean().backward()


def divided_into_several():
    head = nn.Embedding(4, 4)
    return lambda: head(torch.randint(0, 100, (40,)) // 25).square().mean().backward()


@losses(lambda: nn.Linear(8, 8))
def parameters_named_as_those_of_a_watch(head):
    def loss(out, code, names, original):
        return (out * original).square().mean()

    x = torch.randn(6, 8)
    return loss(head(x), code=3, names=("a",), original=x)
