import copy

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.rules.programs import optimized, trained_by, trained_once, trained_with


def validation_under_no_grad():
    model, optimizer = optimized(nn.Linear(8, 1))

    def step():
        model.train()
        trained_once(model, optimizer, torch.ones(4, 8))
        model.eval()
        with torch.no_grad():
            model(torch.ones(4, 8)).mean().item()

    return step


def frozen_teacher():
    teacher, model = nn.Linear(8, 8).requires_grad_(False).eval(), nn.Linear(8, 8)

    def step():
        x = torch.ones(4, 8)
        (model(x) - teacher(x)).square().mean().backward()

    return step


def perceptual_loss_through_a_network_in_eval_mode():
    features, model = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).requires_grad_(False).eval(), nn.Linear(8, 8)
    return lambda: (features(model(torch.ones(4, 8))) - 1).square().mean().backward()


def fine_tuning_with_all_of_the_model_in_eval_mode():
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)).eval()
    return trained_by(model, lambda: model(torch.ones(4, 8)).square().mean())


def saliency_by_autograd_grad():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)).eval()

    def step():
        x = torch.ones(4, 8, requires_grad=True)
        torch.autograd.grad(model(x).sum(), x)

    return step


def rollout_whose_graphs_are_walked_at_the_end_of_the_episode():
    policy = nn.Linear(8, 2).eval()
    optimizer, scores = torch.optim.SGD(policy.parameters(), lr=1e-3), []

    def step():
        scores.append(policy(torch.ones(4, 8)).log_softmax(-1)[:, 0].mean())
        if len(scores) == 3:
            optimizer.zero_grad()
            torch.stack(scores).sum().backward()
            optimizer.step()
            scores.clear()

    return step


def graphs_kept_for_an_episode_longer_than_the_audit():
    policy, scores = nn.Linear(8, 2).eval(), []

    def step():
        scores.append(policy(torch.ones(4, 8)).mean())

    return step


def gradients_by_function_transform_in_eval_mode():
    model = nn.Linear(8, 1).eval()
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def loss_of(weights, x):
        return torch.func.functional_call(model, weights, (x,)).square().mean()

    def step():
        torch.func.grad(loss_of)(weights, torch.ones(4, 8))

    return step


def checkpointed_block_in_eval_mode():
    block, head = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Tanh()).eval(), nn.Linear(8, 1)

    def step():
        x = torch.ones(4, 8, requires_grad=True)
        head(checkpoint(block, x, use_reentrant=False)).mean().backward()
        head(checkpoint(block, x, use_reentrant=True)).mean().backward()

    return step


def target_network_under_no_grad():
    model = nn.Linear(8, 2)
    target = copy.deepcopy(model)

    def loss():
        x = torch.ones(4, 8)
        with torch.no_grad():
            wanted = target(x)
        return (model(x) - wanted).square().mean()

    return trained_by(model, loss)


def gradients_flow_through_a_critic_that_is_trained_elsewhere():
    actor, critic = nn.Linear(8, 2), nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    return trained_by(actor, lambda: (-critic(actor(torch.ones(4, 8)))).mean())


def a_generator_that_is_trained_and_detached_for_the_critic():
    generator, critic = nn.Linear(4, 8), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*generator.parameters(), *critic.parameters()], lr=1e-3)

    def step():
        fake = generator(torch.ones(4, 4)).detach()
        trained_once(critic, optimizer, fake)

    return step


def inner_loop_with_weights_in_the_place_of_the_modules_own():
    net = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
    fast = {name: each.detach().clone().requires_grad_() for name, each in net.named_parameters()}

    def loss():
        scaled = {name: each * 0.5 for name, each in fast.items()}
        kept = torch.func.functional_call(net, scaled, (torch.ones(4, 8),)).mean().item()
        return sum(each.square().sum() * kept for each in fast.values())

    return trained_with(torch.optim.SGD(list(fast.values()), lr=1e-3), loss)


def a_network_beside_that_the_program_updates_itself():
    model, beside = nn.Linear(8, 8), nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        x = torch.ones(4, 8)
        optimizer.zero_grad()
        (model(x) - beside(x)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for each in beside.parameters():
                each -= 0.01 * each.grad
                each.grad = None

    return step


def an_output_that_is_not_used_beside_one_that_is():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 1), nn.Linear(8, 1)

        def forward(self, x):
            h = self.body(x)
            return self.a(h), self.b(h)

    model = Two()

    def loss():
        wanted, _ = model(torch.ones(4, 8))
        return wanted.mean()

    return trained_by(model, loss)


def parts_that_are_called_by_themselves_and_trained():
    encoder, decoder = nn.Linear(8, 4), nn.Linear(4, 8)
    model = nn.ModuleDict({"encoder": encoder, "decoder": decoder})

    def loss():
        x = torch.ones(4, 8)
        return (decoder(encoder(x)) - x).square().mean()

    return trained_by(model, loss)


def head_that_a_backward_walks_as_its_models():
    model, optimizer = optimized(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)))
    model[1] = nn.Linear(8, 2)
    return trained_with(optimizer, lambda: model(torch.ones(4, 8)).square().mean())
