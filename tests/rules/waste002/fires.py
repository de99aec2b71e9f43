import copy
import itertools

import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import numbered, optimized, trained_by, trained_with


def forward_overwritten():
    enc, dec = nn.GRU(16, 32, batch_first=True), nn.Linear(32, 16)
    proj = nn.Sequential(nn.Linear(16, 128), nn.ReLU(), nn.Linear(128, 32))

    def loss():
        x = torch.randn(16, 12, 16)
        h = proj(x)  # WASTE002
        h, _ = enc(x)
        return F.mse_loss(dec(h), x)

    return trained_with(torch.optim.Adam([*enc.parameters(), *dec.parameters()]), loss)


def metrics_each_step_shown_each_hundredth():
    model, opt = optimized(nn.Sequential(nn.Embedding(100, 32), nn.Linear(32, 100)), torch.optim.Adam)

    def step(number):
        ids = torch.randint(0, 100, (16, 32))
        opt.zero_grad()
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), ids.flatten())
        loss.backward()
        opt.step()
        spread = torch.softmax(logits.detach(), -1).sort(-1).values.cumsum(-1)  # WASTE002
        if number % 100 == 0:
            print(spread.mean())

    return numbered(step)


def norms_of_all_gradients_that_nobody_logs():
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(4)])
    params = list(model.parameters())
    opt = torch.optim.SGD(params, lr=0.1)

    def step():
        opt.zero_grad()
        model(torch.randn(64, 32)).square().mean().backward()
        norms = torch._foreach_norm([each.grad for each in params])  # WASTE002
        total = torch.linalg.vector_norm(torch.stack(norms))  # noqa: F841
        opt.step()

    return step


def auxiliary_head_unused_in_every_second_step():
    body, aux, head = nn.Linear(64, 64), nn.Linear(64, 512), nn.Linear(64, 1)
    done = itertools.count()

    def loss():
        h = body(torch.randn(32, 64))
        if next(done) % 2 == 0:
            aux(h)  # WASTE002
        return head(h).square().mean()

    return trained_with(torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1), loss)


def average_by_lerp_in_a_function():
    model, average = nn.Linear(64, 64), nn.Linear(64, 64).requires_grad_(False)

    def follow():
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.lerp(new.detach(), 0.01)  # WASTE002

    def loss():
        follow()
        x = torch.randn(256, 64)
        return (model(x) - average(x)).square().mean()

    return trained_by(model, loss)


def clamp_where_clamp_in_place_is_meant():
    model = nn.Linear(64, 64)

    def classes(y):
        found = y.argmax(1)
        found.clamp(0)  # WASTE002
        return found

    def loss():
        y = model(torch.randn(256, 64))
        return nn.functional.cross_entropy(y, classes(y.detach()))

    return trained_by(model, loss)


def _followed(update):
    online = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))
    target = copy.deepcopy(online).requires_grad_(False)
    opt = torch.optim.SGD(online.parameters(), lr=0.1)

    def step():
        x = torch.randn(8, 16)
        opt.zero_grad()
        F.mse_loss(online(x), target(x)).backward()
        opt.step()
        with torch.no_grad():
            update(target, online)

    return step


def average_put_into_a_copy_of_the_state():
    def update(target, online):
        state = target.state_dict()
        for name, value in online.state_dict().items():
            state[name] = 0.9 * state[name] + 0.1 * value  # WASTE002

    return _followed(update)


def average_under_the_name_of_a_loop():
    def update(target, online):
        for kept, new in zip(target.parameters(), online.parameters(), strict=True):
            kept = kept * 0.9 + new * 0.1  # noqa: PLW2901  # WASTE002

    return _followed(update)
