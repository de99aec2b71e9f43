import copy
import io

import torch
from torch import nn

from tests.rules.programs import numbered


def _trained(model, optimizer):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def _model():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, torch.optim.Adam(model.parameters(), lr=1e-3)


def state_that_is_saved_at_once():
    model, optimizer = _model()
    state = {}

    def step():
        _trained(model, optimizer)
        state["model"] = model.state_dict()
        torch.save(state, io.BytesIO())

    return step


def _best(kept_of):
    def main():
        model, optimizer = _model()
        best, best_state = float("inf"), None
        for _ in range(100):
            loss = _trained(model, optimizer)
            yield
            if loss.item() < best:
                best, best_state = loss.item(), kept_of(model)
        model.load_state_dict(best_state)

    return main().__next__


def best_state_that_is_a_deep_copy():
    return _best(lambda model: copy.deepcopy(model.state_dict()))


def best_state_of_clones():
    return _best(lambda model: {name: value.clone() for name, value in model.state_dict().items()})


def best_state_that_goes_to_the_host():
    return _best(lambda model: {name: value.cpu() for name, value in model.state_dict().items()})


def last_state_that_a_twin_loads_at_once():
    (model, optimizer), (twin, _) = _model(), _model()
    weights = None

    def step(number):
        nonlocal weights
        _trained(model, optimizer)
        if number % 4 == 0:
            weights = model.state_dict()
            twin.load_state_dict(weights)

    return numbered(step)


def state_of_the_last_epoch_saved_behind_the_loop():
    def main():
        model, optimizer = _model()
        for epoch in range(100):
            _trained(model, optimizer)
            yield
            if epoch % 5 == 0:
                last = {"epoch": epoch, "model": model.state_dict()}
        torch.save(last, "/dev/null")

    return main().__next__


def live_view_that_a_copy_loads_again_and_again():
    (model, optimizer), (copied, _) = _model(), _model()
    view, count = model.state_dict(), [0]

    def step():
        _trained(model, optimizer)
        count[0] += 1
        if count[0] % 4 == 0:
            copied.load_state_dict(view)

    return step


def average_that_is_written_through_its_state():
    (model, optimizer), (average, _) = _model(), _model()
    state = average.state_dict()

    def step():
        _trained(model, optimizer)
        with torch.no_grad():
            for name, value in model.state_dict().items():
                state[name].lerp_(value, 0.1)
        average.load_state_dict(state)

    return step


def state_with_changes_that_is_loaded_at_once():
    model, optimizer = _model()
    state = None

    def step(number):
        nonlocal state
        _trained(model, optimizer)
        if number % 3 == 0:
            state = model.state_dict()
            state["0.bias"] = torch.zeros(8)
        if number % 3 == 0:
            model.load_state_dict(state)

    return numbered(step)


def old_state_kept_for_a_comparison():
    model, optimizer = _model()
    before = model.state_dict()

    def step():
        _trained(model, optimizer)
        return sum((before[name] - value).abs().sum() for name, value in model.state_dict().items())

    return step


def weights_that_are_pruned_through_their_state():
    model, optimizer = _model()
    state = model.state_dict()

    def step():
        _trained(model, optimizer)
        with torch.no_grad():
            for value in state.values():
                value.mul_(value.abs() > 1e-3)
        model.load_state_dict(state)

    return step


def one_layer_of_an_old_state_that_is_replaced():
    model, optimizer = _model()
    state = model.state_dict()

    def step():
        _trained(model, optimizer)
        state["2.bias"] = torch.zeros(1)
        model.load_state_dict(state)

    return step
