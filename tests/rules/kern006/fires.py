
import torch
from torch import nn


def rolled_row_by_row():
    model, shifts = nn.Linear(32, 32), list(range(24))

    def step():
        x = torch.randn(24, 32)
        out = torch.empty_like(x)
        for i in shifts:
            out[i] = torch.roll(x[i], i)  # KERN006
        (model(x) - out).square().mean().backward()

    return step


def rows_that_a_function_is_given():
    model = nn.Linear(8, 8)

    def spread(row):
        return (row - row.mean()).square().mean()

    def step():
        x, total = model(torch.randn(16, 8)), 0.0
        for i in range(16):
            total = total + spread(x[i])  # KERN006
        total.backward()

    return step


def prototypes_by_mask():
    model = nn.Linear(8, 8)

    def step():
        y = torch.arange(80).remainder(8)
        z, means = model(torch.randn(80, 8)), []
        for k in range(8):
            means.append(z[y == k].mean(0))  # KERN006
        torch.stack(means).square().mean().backward()

    return step


def dice_of_each_class():
    model = nn.Conv2d(3, 12, 1)

    def step():
        y, p, total = torch.randint(0, 12, (2, 8, 8)), model(torch.rand(2, 3, 8, 8)).softmax(1), 0.0
        for c in range(12):
            t = (y == c).float()  # KERN006
            total = total + 1 - 2 * (p[:, c] * t).sum() / (p[:, c].sum() + t.sum() + 1)
        total.backward()

    return step


def a_gradient_norm_by_hand():
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)])

    def step():
        model.zero_grad()
        model(torch.ones(4, 8)).mean().backward()
        torch.stack([p.grad.norm() for p in model.parameters()]).norm()  # KERN006

    return step


def rows_on_the_gpu__rehearsal():
    model, x = nn.Linear(8, 8).cuda(), torch.randn(32, 8, device="cuda")

    def step():
        out = model(x)
        best = []
        for row in out:
            best.append(row.max())  # KERN006
        torch.stack(best).mean().backward()

    return step


def overlaps_of_all_pairs_of_boxes():
    model = nn.Linear(8, 8)

    def step():
        a, b = torch.rand(12, 4), torch.rand(10, 4)
        out = torch.zeros(12, 10)
        with torch.no_grad():
            for i in range(len(a)):
                for j in range(len(b)):
                    w = torch.clamp(torch.minimum(a[i, 2], b[j, 2]) - torch.maximum(a[i, 0], b[j, 0]), min=0)  # KERN006
                    h = torch.clamp(torch.minimum(a[i, 3], b[j, 3]) - torch.maximum(a[i, 1], b[j, 1]), min=0)
                    whole = (a[i, 2] - a[i, 0]) * (a[i, 3] - a[i, 1])
                    out[i, j] = w * h / (whole + (b[j, 2] - b[j, 0]) * (b[j, 3] - b[j, 1]) - w * h)
        (model(torch.randn(4, 8)).mean() + out.mean()).backward()

    return step


def elements_read_to_pick_samples():
    samples, weight = [torch.full((4,), float(n)) for n in range(64)], torch.zeros(4)
    weight.requires_grad_()

    def step():
        chosen = [samples[int(number)] for number in torch.randint(0, 64, (32,))]  # KERN006
        (torch.stack(chosen) @ weight).sum().backward()

    return step
