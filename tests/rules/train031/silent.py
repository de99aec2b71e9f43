import torch
from torch import nn

from tests.rules.programs import losses
from tests.rules.train031.fires import _Gaussian, _Rollout


def _case(kind, collects_each=1, epochs=1):
    def of(old_of):
        def case():
            run, count = kind(), [0]

            def step():
                if count[0] % collects_each == 0:
                    run.collect()
                count[0] += 1
                for _ in range(epochs):
                    order = torch.randperm(96)
                    for start in range(0, 96, 32):
                        index = order[start : start + 32]
                        new = run.log_prob(run.obs[index], run.act[index])
                        run.update(new, old_of(run, index, new), run.adv[index])

            return step

        return case

    return of


@_case(_Rollout)
def of_the_same_index(run, index, new):
    return run.old.flatten()[index]


@_case(_Gaussian, epochs=2)
def of_several_epochs(run, index, new):
    return run.old.flatten()[index]


@_case(_Gaussian, collects_each=4)
def of_an_old_rollout(run, index, new):
    return run.old.flatten()[index]


@_case(_Gaussian)
def of_values_that_are_shuffled_on_purpose(run, index, new):
    return new.detach()[torch.arange(64) % 32][7:39]


@_case(_Gaussian)
def of_another_policy(run, index, new):
    return (run.old + 0.1 * torch.randn(12, 8)).flatten()[:32]


def of_a_uniform_policy():
    run = _Rollout(lr=0.0)
    torch.nn.init.zeros_(run.net[2].weight)
    torch.nn.init.zeros_(run.net[2].bias)

    def step():
        run.collect()
        index = torch.randperm(96)[:32]
        new = run.log_prob(run.obs[index], run.act[index])
        run.update(new, run.old.flatten()[:32], run.adv[index])

    return step


def of_few_states():
    run = _Rollout(lr=0.0)

    def step():
        run.collect()
        with torch.no_grad():
            run.obs = run.obs.sign()[:, :1].expand(-1, 4)
            run.old = run.log_prob(run.obs, run.act)
        index = torch.randperm(96)[:32]
        new = run.log_prob(run.obs[index], run.act[index])
        run.update(new, run.old.flatten()[index], run.adv[index])

    return step


def of_the_policy_itself_without_its_gradient():
    run = _Rollout()

    def step():
        run.collect()
        old = run.log_prob(run.obs, run.act).detach()
        run.update(run.log_prob(run.obs, run.act), old, run.adv)

    return step


def _zeroed(outputs):
    head = nn.Linear(4, outputs)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


@losses(lambda: _zeroed(3))
def equal_outputs_of_a_head_of_zeros(head):
    return (head(torch.randn(16, 4)) - head(torch.randn(16, 4)) - 1).square().mean()


@losses(lambda: (_zeroed(3), _zeroed(3)))
def equal_outputs_of_two_networks(one, two):
    x = torch.randn(16, 4)
    return (one(x) - two(x) - 1).square().mean()


@losses(lambda: nn.Linear(4, 3))
def a_rounding_that_changes_nothing(net):
    out = net(torch.randn(16, 4))
    kept = out.clone()
    return (out + (kept - out).detach() - 1).square().mean()
