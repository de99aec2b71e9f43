import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.rules.graph005.fires import _Scaled
from tests.rules.programs import numbered, optimized, trained_by, trained_once, trained_with


def heads_trained_in_turn():
    body, heads = nn.Linear(8, 8), [nn.Linear(8, 1), nn.Linear(8, 1)]
    optimizer = torch.optim.SGD([p for layer in (body, *heads) for p in layer.parameters()], lr=1e-3)

    def step(number):
        optimizer.zero_grad()
        heads[number // 3 % 2](body(torch.ones(4, 8))).mean().backward()
        optimizer.step()

    return numbered(step)


def frozen_body_in_the_same_optimizer():
    body, head = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 1)

    def loss():
        return head(body(torch.ones(4, 8))).mean()

    return trained_with(torch.optim.SGD([*body.parameters(), *head.parameters()], lr=1e-3), loss)


def gradients_that_are_zero():
    model = nn.Linear(8, 1)
    return trained_by(model, lambda: (0.0 * model(torch.ones(4, 8))).mean())


def warm_up_that_begins_at_zero():
    model, optimizer = optimized(nn.Linear(8, 1))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 100))

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        schedule.step()

    return step


def gradients_accumulated_over_four_steps():
    model, optimizer = optimized(nn.Linear(8, 1))

    def step(number):
        model(torch.ones(4, 8)).mean().backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()

    return numbered(step)


def gradients_made_in_a_closure():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=2)

    def closure():
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        return loss

    def step():
        optimizer.zero_grad()
        optimizer.step(closure)

    return step


def optimizer_that_drops_gradients_in_its_step():
    class Frugal(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            self.zero_grad()

    model = nn.Linear(8, 1)
    optimizer = Frugal(model.parameters(), lr=1e-3)

    def step():
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()

    return step


def empty_parameter_that_only_tells_the_device():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.dummy = nn.Linear(8, 1), nn.Parameter(torch.empty(0))

        def forward(self, x):
            return self.inner(x.to(self.dummy.device))

    model = Model()
    return trained_by(model, lambda: model(torch.ones(4, 8)).square().mean())


def _checkpointed(x_of, **more):
    embed, layer, head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)
    embed.requires_grad_(False)
    optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.01)

    def step():
        hidden = checkpoint(lambda x: layer(x).relu(), x_of(embed), **more)
        trained_once(head, optimizer, hidden)

    return step


def frozen_input_of_a_checkpoint_that_requires_a_gradient():
    def x_of(embed):
        return embed(torch.randn(4, 8)).requires_grad_()

    return _checkpointed(x_of, use_reentrant=True)


def frozen_input_of_a_checkpoint_of_the_other_kind():
    return _checkpointed(lambda embed: embed(torch.randn(4, 8)), use_reentrant=False)


def teacher_in_a_checkpoint():
    teacher, model = nn.Linear(8, 8).requires_grad_(False), nn.Linear(8, 4)

    def loss():
        x = torch.randn(4, 8)
        return model(checkpoint(teacher, x, use_reentrant=True)).square().mean()

    return trained_by(model, loss)


def layer_that_is_taken_out_for_a_while():
    model, optimizer = optimized(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)))

    def step():
        head, model[1] = model[1], nn.Identity()
        model(torch.ones(4, 8)).sum()
        model[1] = head
        trained_once(model, optimizer, torch.ones(4, 8))

    return step


def new_layer_that_the_optimizer_is_given():
    model, optimizer = optimized(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)))
    model[1] = nn.Linear(8, 2)
    optimizer.param_groups[0]["params"] = [*model.parameters()]
    return lambda: trained_once(model, optimizer, torch.ones(4, 8))


def adapter_of_a_layer_that_calls_it():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1))
    model[0] = _Scaled(model[0])
    optimizer = torch.optim.SGD([model[0].gain, *model[1].parameters()], lr=0.01)
    return lambda: trained_once(model, optimizer, torch.randn(4, 8))
