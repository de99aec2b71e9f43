import torch

from tests.rules.train031.fires import _Gaussian, _Rollout


def _of(kind, old_of, collects_each=1, epochs=1):
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
                    run.update(new, old_of(run, index, start, new), run.adv[index])

        return step

    return case


def _by_index(run, index, start, new):
    return run.old.flatten()[index]


def _of_the_first(run, index, start, new):
    return run.old.flatten()[start : start + 32]


of_the_same_index = _of(_Rollout, _by_index)
of_several_epochs = _of(_Gaussian, _by_index, epochs=2)
of_an_old_rollout = _of(_Gaussian, _by_index, collects_each=4)
of_values_that_are_shuffled_on_purpose = _of(
    _Gaussian, lambda run, index, start, new: new.detach()[torch.randperm(32)]
)
of_another_policy = _of(
    _Gaussian, lambda run, index, start, new: (run.old + 0.1 * torch.randn(12, 8)).flatten()[index]
)


def of_a_uniform_policy():
    run = _Rollout(lr=0.0)
    torch.nn.init.zeros_(run.net[2].weight)
    torch.nn.init.zeros_(run.net[2].bias)

    def step():
        run.collect()
        index = torch.randperm(96)[:32]
        new = run.log_prob(run.obs[index], run.act[index])
        run.update(new, _of_the_first(run, index, 0, new), run.adv[index])

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
        run.update(new, run.old[index], run.adv[index])

    return step
