from collections import deque

import torch
from torch import nn

from tests.rules.programs import behind_a_backward, trained_by, trained_once


def total_summed_with_its_graph():
    model = nn.Linear(8, 1)
    total = 0.0

    def step():
        nonlocal total
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        total += loss  # GRAPH001

    return step


def outputs_kept_on_an_object():
    class Trainer:
        def __init__(self):
            self.model, self.outputs = nn.Linear(8, 1), []

        def step(self):
            out = self.model(torch.ones(4, 8))
            self.outputs.append(out)  # GRAPH001
            out.mean().backward()

    return Trainer().step


def metrics_in_a_dict_of_lists():
    history = {"loss": []}

    def after(loss):
        history["loss"].append(loss)  # GRAPH001

    return behind_a_backward(after)


def deque_that_is_longer_than_the_audit():
    recent = deque(maxlen=1000)

    def after(loss):
        recent.append(loss)  # GRAPH001

    return behind_a_backward(after)


def list_in_a_default_argument():
    model = nn.Linear(8, 1)

    def step(history=[]):  # noqa: B006 - the mistake that is meant
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        history.append(loss)  # GRAPH001

    return step


def whole_outputs_in_a_dict_kept():
    model, kept = nn.Linear(8, 1), []

    def step():
        logits = model(torch.ones(4, 8))
        outputs = {"loss": logits.square().mean(), "logits": logits}
        outputs["loss"].backward()
        kept.append(outputs)  # GRAPH001

    return step


def average_of_weights_bound_anew():
    model, decay = nn.Linear(8, 1), 0.99
    shadow = [p.detach().clone() for p in model.parameters()]

    def update():
        nonlocal shadow
        old = torch._foreach_mul(shadow, decay)
        shadow = list(torch._foreach_add(old, list(model.parameters()), alpha=1 - decay))  # GRAPH001

    def step():
        model(torch.ones(4, 8)).square().mean().backward()
        update()

    return step


def average_of_weights_written_in_place_in_a_loop():
    class AverageOneByOne:
        def __init__(self, model):
            self.model, self.held = model, [each.detach().clone() for each in model.parameters()]

        def update(self):
            for kept, now in zip(self.held, self.model.parameters(), strict=True):
                kept.mul_(0.99).add_(now, alpha=0.01)  # GRAPH001

    model = nn.Linear(8, 1)
    optimizer, average = torch.optim.SGD(model.parameters(), lr=0.1), AverageOneByOne(model)

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        average.update()

    return step


def last_item_read_by_the_forward():
    states = []
    layer, head = nn.Linear(8, 8), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.1)

    def step():
        states.append(layer(torch.ones(4, 8)).relu())  # GRAPH001
        loss = head(states[-1]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def history_read_by_the_forward_that_fills_it():
    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head, self.remembered = nn.Linear(8, 8), nn.Linear(8, 1), []

        def forward(self, x):
            self.remembered.append(self.layer(x).relu())  # GRAPH001
            return self.head(self.remembered[-1])

    model = Remembering()
    return trained_by(model, lambda: model(torch.ones(4, 8)).square().mean())


def losses_whose_last_runs_the_backward():
    model, kept_losses = nn.Linear(8, 1), []

    def step():
        kept_losses.append(model(torch.ones(4, 8)).square().mean())  # GRAPH001
        model.zero_grad()
        kept_losses[-1].backward()

    return step


def penalty_of_what_a_hook_keeps():
    hooked, layer, head = [], nn.Linear(8, 8), nn.Linear(8, 1)

    def keep(module, inputs, output):
        hooked.append(output)  # GRAPH001

    layer.register_forward_hook(keep)

    def step():
        loss = head(layer(torch.ones(4, 8)).relu()).square().mean()
        (loss + 0.1 * hooked[-1].abs().mean()).backward()

    return step


def newest_by_another_name():
    layer, head, seen = nn.Linear(8, 8), nn.Linear(8, 1), {"hidden": []}

    def newest(held):
        return held[-1]

    def step():
        seen["hidden"].append(layer(torch.ones(4, 8)))  # GRAPH001
        head(newest(seen["hidden"])).square().mean().backward()

    return step


def losses_kept_before_the_backward():
    model, curve = nn.Linear(8, 1), []

    def step():
        loss = model(torch.ones(4, 8)).square().mean()
        curve.append(loss)  # GRAPH001
        loss.backward()
        if len(curve) % 1000 == 0:
            mean = sum(curve) / len(curve)
            print(f"{mean:.3f}")

    return step


def all_losses_in_one_backward_now_and_then():
    model, waiting = nn.Linear(8, 1), []

    def step():
        waiting.append(model(torch.ones(4, 8)).square().mean())  # GRAPH001
        if len(waiting) == 50:
            together = torch.stack(waiting).mean()
            together.backward()
            waiting.clear()

    return step


def outputs_in_hooks_that_are_never_removed():
    model = nn.Linear(8, 1)

    def with_maps(x):
        maps = []
        model.register_forward_hook(lambda module, args, out: maps.append(out))  # GRAPH001
        return model(x)

    return lambda: with_maps(torch.ones(4, 8)).mean().backward()
