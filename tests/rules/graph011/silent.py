import torch
from torch import nn

from tests.rules.graph011.fires import _Adapter, _model, _of_low_rank
from tests.rules.programs import trained_on_noise


def _adapted(model):
    model.requires_grad_(False)
    model[0] = _Adapter(model[0])
    return [*model[0].down.parameters(), *model[0].up.parameters()]


def a_new_layer_that_is_trained():
    model = _model()
    trained = _adapted(model)
    model[2] = nn.Linear(32, 3)
    return trained_on_noise(model, [*trained, *model[2].parameters()])


def a_layer_that_keeps_rows_of_the_old_one():
    model = _model()
    small = nn.Linear(32, 3)
    small.load_state_dict({name: each[:3] for name, each in model[2].state_dict().items()})
    model[2] = small
    return trained_on_noise(model, _adapted(model))


def rows_that_are_written_into_its_data():
    model = _model()
    small = nn.Linear(32, 3)
    small.weight.data = model[2].weight.data[:3].clone()
    model[2] = small
    return trained_on_noise(model, _adapted(model))


def a_new_layer_that_is_loaded_later():
    model, other = _model(), nn.Linear(32, 3)
    model[2] = nn.Linear(32, 3)
    model[2].load_state_dict(other.state_dict())
    return trained_on_noise(model, _adapted(model))


def a_random_network_that_is_predicted():
    model, target = _model(), nn.Linear(16, 100).requires_grad_(False)
    return trained_on_noise(lambda x: model(x) - target(x), model.parameters())


def a_layer_of_the_same_size():
    model = _model()
    model[2] = nn.Linear(32, 100)
    return trained_on_noise(model, _adapted(model))


def a_new_layer_of_a_teacher():
    model, teacher = _model(), _model()
    teacher[2] = nn.Linear(32, 3)
    teacher.requires_grad_(False)

    def forward(x):
        with torch.no_grad():
            wanted = teacher(x).mean()
        return model(x) - wanted

    return trained_on_noise(forward, model.parameters())


def loaded_from_two_files():
    model, other = _model(), _model()
    first = {f"0.{name}": each for name, each in other[0].state_dict().items()}
    model.load_state_dict(first, strict=False)
    model[2].load_state_dict(nn.Linear(32, 100).state_dict())
    return trained_on_noise(model, _adapted(model))


def factors_that_another_function_unfreezes():
    model = _of_low_rank()
    model[0].requires_grad_(False)
    step, steps = trained_on_noise(model, model.parameters()), []

    def unfreeze():
        for each in (model[0].low, model[0].high):
            each.requires_grad_(True)

    def staged():
        steps.append(None)
        if len(steps) == 10_000:
            unfreeze()
        step()

    return staged


def a_frozen_token_of_zeros_that_is_added__no_note():
    model, token = _model(), nn.Parameter(torch.zeros(1, 16), requires_grad=False)
    model.token = token
    return trained_on_noise(lambda x: model[2](model[0](x + token)), model.parameters())


def a_zero_layer_of_a_frozen_network__no_note():
    model, other = _model(), nn.Linear(16, 100).requires_grad_(False)
    nn.init.zeros_(other.weight)
    return trained_on_noise(lambda x: model(x) - other(x), model.parameters())


def zeros_that_are_filled_in_the_step__no_note():
    model = _model()
    model.memory = nn.Parameter(torch.zeros(16, 16), requires_grad=False)

    def forward(x):
        memory = x @ model.memory
        with torch.no_grad():
            model.memory.add_(1.0)
        return model[2](model[0](x + memory))

    return trained_on_noise(forward, model.parameters())
