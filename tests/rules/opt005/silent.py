import torch
from torch import nn

from tests.rules.programs import numbered, optimized, trained_once


def _with(clear):
    model, optimizer = optimized(nn.Linear(8, 4), momentum=0.9)

    def step():
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
        clear(model, optimizer)

    return step


def cleared_after_the_step():
    return _with(lambda model, optimizer: optimizer.zero_grad())


def filled_with_zeros():
    return _with(lambda model, optimizer: model.zero_grad(set_to_none=False))


def dropped_by_hand():
    def clear(model, optimizer):
        for parameter in model.parameters():
            parameter.grad = None

    return _with(clear)


def zeroed_by_hand_through_data():
    def clear(model, optimizer):
        for parameter in model.parameters():
            parameter.grad.detach_().zero_()

    return _with(clear)


def decayed_on_purpose():
    def clear(model, optimizer):
        for parameter in model.parameters():
            parameter.grad.mul_(0.9)

    return _with(clear)


def accumulated_over_four_backwards():
    model, optimizer = optimized(nn.Linear(8, 4))

    def step(number):
        (model(torch.ones(4, 8)).square().mean() / 4).backward()
        if number % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()

    return numbered(step)


def a_gan_whose_generator_leaves_gradients_in_the_discriminator():
    generator, discriminator = nn.Linear(4, 8), nn.Linear(8, 1)
    makes, judges = torch.optim.SGD(generator.parameters(), lr=1e-3), torch.optim.SGD(discriminator.parameters(), lr=1e-3)

    def step():
        made = generator(torch.ones(4, 4))
        judges.zero_grad()
        (discriminator(made.detach()).mean() - discriminator(torch.ones(4, 8)).mean()).backward()
        judges.step()
        makes.zero_grad()
        (-discriminator(made).mean()).backward()
        makes.step()

    return step


def two_optimizers_on_one_backward():
    model = nn.Linear(8, 4)
    first, second = (torch.optim.SGD(model.parameters(), lr=1e-3) for _ in range(2))

    def step():
        trained_once(model, first, torch.ones(4, 8))
        second.step()

    return step


def a_closure_that_clears():
    model = nn.Linear(8, 4)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1e-3, max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


def stepped_inside_the_backward():
    model = nn.Linear(8, 4)
    optimizers = {each: torch.optim.SGD([each], lr=1e-3) for each in model.parameters()}

    def hook(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for each in model.parameters():
        each.register_post_accumulate_grad_hook(hook)

    return lambda: model(torch.ones(4, 8)).square().mean().backward()


def gradients_of_their_own_making():
    weight = nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=1e-3)

    def step():
        (gradient,) = torch.autograd.grad((weight * 2).sum(), weight)
        weight.grad = gradient
        optimizer.step()

    return step


def cleared_under_a_scaler__rehearsal():
    model, scaler = nn.Linear(8, 4).cuda(), torch.amp.GradScaler("cuda", init_scale=8.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.ones(4, 8, device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).float().square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step
