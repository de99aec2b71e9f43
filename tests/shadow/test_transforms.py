"""Transforms of torch.func on the shadow: the results are the host's, and nothing crosses."""

import pytest
import torch
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vmap
from torch.nn.functional import cross_entropy, silu

from auditor.capture.shadow import shadow_cuda
from tests.shadow.listening import Heard


def gradients_of_each_sample(device):
    model = torch.nn.Linear(3, 2).to(device)
    x, wanted = torch.arange(12.0).reshape(4, 3).to(device), torch.tensor([0, 1, 1, 0]).to(device)

    def loss(parameters, one, target):
        return cross_entropy(functional_call(model, parameters, (one[None],)), target[None])

    return lambda: vmap(grad(loss), (None, 0, 0))(dict(model.named_parameters()), x, wanted)[
        "weight"
    ]


def ensemble(device):
    models = [torch.nn.Linear(3, 2).to(device) for _ in range(2)]
    parameters, buffers = stack_module_state(models)
    x, wanted = torch.arange(12.0).reshape(4, 3).to(device), torch.tensor([0, 1, 1, 0]).to(device)

    def loss(parameters, buffers, x):
        return cross_entropy(functional_call(models[0], (parameters, buffers), (x,)), wanted)

    return lambda: vmap(loss, (0, 0, None))(parameters, buffers, x)


def moved_inside(device):
    x = torch.arange(6.0).reshape(2, 3).to(device)
    weight = torch.ones(3).to(device)
    return lambda: vmap(lambda row: torch.dot(row.to(device), weight.to(row.device)))(x)


def jacobian(device):
    weight = torch.arange(3.0).to(device)
    return lambda: jacrev(lambda x: (x * weight).sin())(weight)


def forward_derivatives(device):
    x = torch.arange(1.0, 4.0).to(device)
    return lambda: torch.cat(
        [jvp(lambda x: (x**3).cumprod(0), (x,), (x,))[1], jacfwd(torch.sin)(x).sum(0)]
    )


def curvature(device):
    x = torch.arange(1.0, 4.0).to(device)
    return lambda: hessian(lambda x: silu(x).prod() + (x**3).sum())(x)


def values_of_each_matrix(device):
    x = torch.stack([torch.eye(3) * 2, torch.ones(3, 3)]).to(device)
    return lambda: vmap(torch.linalg.eigvalsh)(x) + vmap(grad(torch.prod))(x[:, 0] + 1)


TRANSFORMS = (
    *(gradients_of_each_sample, ensemble, moved_inside, jacobian, forward_derivatives),
    *(curvature, values_of_each_matrix),
)


@pytest.mark.parametrize("make", TRANSFORMS)
def test_a_transform_is_played(make):
    torch.manual_seed(0)
    expected = make("cpu")()
    heard = Heard()
    with shadow_cuda(heard):
        torch.manual_seed(0)
        step = make("cuda")
        heard.forget()
        result = step()
        assert result.device.type == "cuda"
        # whether the eigenvalues converged is read (BatchLinearAlgebra.cpp, _linalg_check_errors)
        assert heard.kinds() == (["check"] if make is values_of_each_matrix else [])
        assert torch.equal(result.cpu(), expected)
