import torch
from torch import nn

from tests.rules.programs import numbered, optimized, trained_once, trained_with


def causal_mask_in_a_buffer():
    model = nn.Linear(4, 4)
    model.register_buffer("mask", torch.full((6, 6), -float("inf")).triu(1))
    return lambda: torch.save(model.state_dict(), "last.pt")


def best_loss_not_yet_set():
    return lambda: torch.save({"model": nn.Linear(4, 1).state_dict(), "best": float("inf"), "best_loss": torch.tensor(float("inf"))}, "last.pt")


def history_of_losses_with_a_skipped_batch():
    losses = torch.tensor([1.0, float("nan"), 0.5])
    return lambda: torch.save({"model": nn.Linear(4, 1).state_dict(), "losses": losses}, "last.pt")


def largest_finite_numbers():
    return lambda: torch.save({"a.weight": torch.full((3, 3), 65504.0).half(), "b.weight": torch.full((3,), 3.3e38)}, "last.pt")


def gap_of_a_view_is_nan():
    whole = torch.full((4, 6), float("nan"))
    whole[:, 2] = 1.0
    return lambda: torch.save({"a.weight": whole[:, 2], "b.weight": torch.ones(2, 2)}, "last.pt")


def run_with_a_frozen_mask_among_the_parameters():
    model = nn.Linear(4, 4)
    model.mask = nn.Parameter(torch.full((4, 4), -float("inf")).triu(1), requires_grad=False)

    def loss():
        return (model(torch.eye(4)) + model.mask).softmax(-1)[:, 0].mean()

    return trained_with(torch.optim.SGD(model.parameters(), lr=0.1), loss)


def run_whose_nan_was_born_in_a_step_and_is_for_another_rule():
    model, count = nn.Linear(4, 1), [0]

    def loss():
        count[0] += 1
        return (model(torch.ones(2, 4)) / (0.0 if count[0] == 5 else 1.0)).mean()  # NUM002

    return trained_with(torch.optim.SGD(model.parameters(), lr=0.1), loss)


def bad_batch_kept_from_the_forward():
    model, optimizer = optimized(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))

    def step(number):
        x = torch.rand(8, 4)
        if number % 4 == 0:
            x[3] = float("inf")
        if not torch.isfinite(x).all():
            return
        trained_once(model, optimizer, x)

    return numbered(step)


def bad_batch_in_an_evaluation():
    model, optimizer = optimized(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))

    def step():
        trained_once(model, optimizer, torch.rand(8, 4))
        model.eval()
        with torch.no_grad():
            model(torch.full((8, 4), float("nan")))
        model.train()

    return step


def batch_norm_under_a_gradient_scaler__rehearsal():
    model, optimizer = optimized(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).cuda())
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**28)

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.rand(8, 4, device="cuda")).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step
