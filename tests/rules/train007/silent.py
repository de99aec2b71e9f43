import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import fed_by
from tests.rules.train007.fires import _Adapted


def _classes(rows=32):
    return torch.randint(0, 4, (rows,))


def _images():
    return torch.randint(0, 256, (32, 1, 12, 12)).float(), _classes()


def _rows():
    return torch.randn(32, 8), _classes()


class _Convolved(nn.Module):
    def __init__(self, *behind, before=None, after=None):
        super().__init__()
        self.conv, self.behind = nn.Conv2d(1, 8, 3), nn.Sequential(*behind)
        self.head = nn.Linear(8, 4)
        self.before, self.after = before or nn.Identity(), after or nn.Identity()

    def forward(self, x):
        x = self.behind(self.after(self.conv(self.before(x))))
        return self.head(F.relu(x).mean((2, 3)))


class _Divided(nn.Module):
    def forward(self, x):
        return x / 255


class _Standardised(nn.Module):
    """A batch norm by hand."""

    def forward(self, x):
        return (x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)


def images_with_a_batch_norm_behind():
    return fed_by(_Convolved(nn.BatchNorm2d(8)), _images)


def images_with_a_group_norm_after_an_activation():
    return fed_by(_Convolved(nn.ReLU(), nn.GroupNorm(2, 8)), _images)


def images_divided_in_the_forward():
    return fed_by(_Convolved(before=_Divided()), _images)


def images_divided_behind_the_layer():
    return fed_by(_Convolved(after=_Divided()), _images)


def images_standardised_by_hand_behind_the_layer():
    return fed_by(_Convolved(after=_Standardised()), _images)


def a_learned_scale():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale, self.head = nn.Parameter(torch.tensor(0.004)), nn.Linear(144, 4)

        def forward(self, x):
            return self.head((x * self.scale).flatten(1))

    return fed_by(Net(), _images)


def weights_that_bring_it_to_unit_scale():
    model = _Convolved()
    with torch.no_grad():
        model.conv.weight /= 255
    return fed_by(model, _images)


def standardised_rows_with_outliers():
    def batch():
        x, y = _rows()
        x[::16] *= 20
        return x, y

    return fed_by(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4)), batch)


def one_row_without_a_batch():
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    return fed_by(model, lambda: (torch.randn(8), torch.tensor(1)))


def numbers_of_an_embedding():
    model = nn.Sequential(nn.Embedding(30000, 8), nn.Flatten(), nn.Linear(64, 4))
    return fed_by(model, lambda: (torch.randint(0, 30000, (32, 8)), _classes()))


def targets_that_are_large():
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    batch = lambda: (torch.randn(32, 8), 1e5 * torch.randn(32, 1))  # noqa: E731
    return fed_by(model, batch, F.mse_loss, 1e-9)


def frozen_first_layer():
    model = _Convolved()
    model.conv.requires_grad_(False)
    with torch.no_grad():
        model.head.weight /= 100
    return fed_by(model, _images)


class _Units(nn.Module):
    """Units of which 28 of 32 answer only where the last column is large."""

    def __init__(self, units=32, shut=28, active=nn.functional.relu):
        super().__init__()
        self.body, self.head, self.active = nn.Linear(8, units), nn.Linear(units, 4), active
        with torch.no_grad():
            self.body.weight[:shut, -1] = 1.0
            self.body.bias[:shut] = -50.0

    def forward(self, x):
        return self.head(self.active(self.body(x)))


def units_that_answer_to_a_batch_now_and_then():
    count = [0]

    def batch():
        count[0] += 1
        x, y = _rows()
        x[:, -1] += 100.0 * (count[0] % 5 == 0)
        return x, y

    return fed_by(_Units(), batch)


def too_few_units():
    return fed_by(_Units(units=12, shut=11), _rows)


def units_that_are_mostly_active_somewhere():
    return fed_by(_Units(shut=22), _rows)


def frozen_units():
    model = _Units()
    model.body.requires_grad_(False)
    return fed_by(model, _rows)


def negative_slopes():
    return fed_by(_Units(active=F.leaky_relu), _rows)


def too_few_samples():
    return fed_by(_Units(), lambda: (torch.randn(4, 8), _classes(4)))


def sure_classifier():
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4), nn.Sigmoid())
    with torch.no_grad():
        model[2].bias -= 10.0
    batch = lambda: (torch.randn(32, 8), torch.zeros(32, 4))  # noqa: E731
    return fed_by(model, batch, F.binary_cross_entropy)


class _Gated(nn.Module):
    def __init__(self, scale, shift, own=False):
        super().__init__()
        self.body, self.gate, self.head = nn.Linear(8, 32), nn.Linear(8, 32), nn.Linear(32, 4)
        self.scale, self.shift, self.own = scale, shift, own

    def forward(self, x):
        x, given = self.body(x), self.scale * self.gate(x) + self.shift
        return self.head((given if self.own else x) * torch.sigmoid(given))


def units_that_a_factor_of_zero_hides():
    class Net(_Units):
        def forward(self, x):
            return self.head(0.0 * F.relu(self.body(x)))

    return fed_by(Net(shut=0), _rows)


def clamped_from_above():
    return fed_by(_Units(active=lambda x: x.clamp(max=1.0)), _rows)


def results_of_tanh_that_are_negative():
    return fed_by(_Units(shut=0, active=lambda x: torch.tanh(0.1 * x - 1.5)), _rows)


def gates_that_are_open_in_every_second_batch():
    return gates_that_are_open_now_and_then(1)


def gates_that_are_open_now_and_then(begin=0):
    count = [begin]

    class Net(_Gated):
        def forward(self, x):
            count[0] += 1
            self.shift = 10.0 * (count[0] % 2)
            return super().forward(x)

    return fed_by(Net(1.0, 0.0), _rows)


def gates_that_are_mostly_open():
    return fed_by(_Gated(8.0, 4.0), _rows)


def swish_by_hand_of_large_numbers():
    return fed_by(_Gated(1.0, 20.0, own=True), _rows)


def _branch(active):
    return lambda x, down, up: up(active(down(x)))


def _zero_where(wide):
    def start(weight):
        if (weight.shape[0] > weight.shape[1]) == wide:
            nn.init.constant_(weight, 0.0)

    return start


def the_last_layer_of_a_branch_starts_at_zero():
    return fed_by(_Adapted(_branch(F.gelu), _zero_where(wide=True)), _rows)


def the_first_layer_of_a_branch_starts_at_zero():
    return fed_by(_Adapted(_branch(F.gelu), _zero_where(wide=False)), _rows)


def both_at_zero_but_half_open_between():
    return fed_by(_Adapted(_branch(torch.sigmoid)), _rows)


def a_frozen_branch_of_zeros():
    model = _Adapted(_branch(F.gelu))
    model.down.requires_grad_(False)
    return fed_by(model, _rows)


def a_branch_of_zeros_that_some_steps_do_not_feed():
    def branch(x, down, up):
        return up(F.gelu(down(x * (x.sum() > 0))))

    return fed_by(_Adapted(branch, _zero_where(wide=True)), _rows)


def gates_and_a_head_that_start_at_zero():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.gates, self.head = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 4)
            for each in (*self.gates.parameters(), *self.head.parameters()):
                nn.init.constant_(each, 0.0)

        def forward(self, x):
            out = torch.tanh(self.body(x))
            return self.head(out + self.gates(x) * out)

    return fed_by(Net(), _rows)
