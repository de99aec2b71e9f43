import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import numbered, optimized, trained_by


def masked_attention():
    model = nn.Linear(4, 4)
    mask = torch.triu(torch.full((4, 4), float("-inf")), 1)

    def loss():
        scores = model(torch.eye(4)).masked_fill(mask < 0, float("-inf")) + mask
        return scores.softmax(-1)[:, 0].mean()

    return trained_by(model, loss)


def infinite_metric_that_never_reaches_the_loss():
    model, perplexities = nn.Linear(4, 4), []

    def loss():
        out = model(torch.ones(2, 4)).square().mean()
        perplexities.append(torch.exp(out.detach() + 1000))
        return out

    return trained_by(model, loss)


def infinities_replaced_before_the_loss():
    model = nn.Linear(4, 4)

    def loss():
        with torch.no_grad():
            weights = torch.nan_to_num(1 / torch.zeros(4), posinf=1.0)
        return (model(torch.ones(2, 4)) * weights).square().mean()

    return trained_by(model, loss)


def step_skipped_by_the_gradient_scaler():
    model, optimizer = optimized(nn.Linear(4, 1), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def step(number):
        optimizer.zero_grad()
        overflow = float("inf") if number in (3, 6, 9) else 1.0
        scaler.scale(model(torch.ones(2, 4)).square().mean() * overflow).backward()
        scaler.step(optimizer)
        scaler.update()

    return numbered(step)


def step_skipped_inside_a_fused_optimizer():
    model = nn.Linear(4, 1)
    optimizer = type("Renamed", (torch.optim.Adam,), {})(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)

    def step(number):
        optimizer.zero_grad()
        overflow = float("inf") if number in (3, 6, 9) else 1.0
        scaler.scale(model(torch.ones(2, 4)).square().mean() * overflow).backward()
        scaler.step(optimizer)
        scaler.update()

    return numbered(step)


def bad_batch_skipped_by_the_users_own_guard():
    model, optimizer = optimized(nn.Linear(4, 1), lr=0.01)

    def step(number):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean() * (float("nan") if number == 5 else 1.0)
        loss.backward()
        if torch.isfinite(nn.utils.clip_grad_norm_(model.parameters(), 1.0)):
            optimizer.step()

    return numbered(step)


def gradients_repaired_before_the_step():
    model, optimizer = optimized(nn.Linear(4, 4), lr=0.01)

    def step():
        optimizer.zero_grad()
        gap = model(torch.ones(2, 4))
        torch.sqrt((gap - gap.detach()).square()).mean().backward()
        for parameter in model.parameters():
            parameter.grad.nan_to_num_(0.0)
        optimizer.step()

    return step


def infinite_loss_with_finite_gradients():
    model = nn.Linear(4, 1)
    return trained_by(model, lambda: (model(torch.ones(2, 4)) + torch.tensor([[1e38]])).sum() * 4)


def huge_but_finite_weights():
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1e38)
    return trained_by(model, lambda: (model(torch.full((2, 4), 1e-38))).sum())


def nan_loss_of_ignored_labels_whose_gradients_are_zero():
    model = nn.Linear(4, 4)
    return trained_by(model, lambda: F.cross_entropy(model(torch.ones(3, 4)), torch.full((3,), -100)))


def hole_in_the_data_which_is_for_another_rule():
    model, count = nn.Linear(4, 1), [0]

    def loss():
        count[0] += 1
        rows = torch.from_numpy(torch.ones(2, 4).numpy().copy())
        if count[0] == 5:
            rows.numpy()[1, 2] = float("nan")
        return model(rows).mean()  # NUM015

    return trained_by(model, loss)


def fused_attention_keeps_its_scores_in_float32__rehearsal():
    model = nn.Linear(64, 64).cuda()

    def loss():
        with torch.autocast("cuda", dtype=torch.float16):
            x = model(torch.ones(1, 2, 6, 64, device="cuda")) + 200
            return F.scaled_dot_product_attention(x, x, x, is_causal=True).float().mean()

    return trained_by(model, loss)


def squares_that_autocast_takes_in_float32__rehearsal():
    model = nn.Linear(64, 64).cuda()

    def loss():
        with torch.autocast("cuda", dtype=torch.float16):
            out = model(torch.ones(8, 64, device="cuda")) + 1000
            return F.layer_norm(out, (64,)).mean() + torch.log1p(out.pow(2).sum())

    return trained_by(model, loss)


def kernels_that_add_up_in_float32__rehearsal():
    model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64)).cuda().half()

    def loss():
        out = model(torch.full((512, 64), 30.0, device="cuda", dtype=torch.float16)) + 500
        return out.mean() + F.layer_norm(out, (64,)).mean() + out.softmax(-1).mean()

    return trained_by(model, loss)
