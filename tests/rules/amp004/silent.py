import torch
from torch import nn

from tests.rules.programs import scaled_once, trained_with


def _parts(**more):
    model, scaler = nn.Linear(8, 1).cuda(), torch.amp.GradScaler("cuda", **more)
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), scaler, torch.ones(4, 8, device="cuda")


def dtype_chosen_by_what_the_card_can__cuda():
    model, optimizer, scaler, x = _parts(enabled=not torch.cuda.is_bf16_supported())
    dtype = torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16

    def step():
        with torch.autocast("cuda", dtype=dtype):
            loss = model(x).float().mean()
        scaled_once(optimizer, scaler, loss)

    return step


def no_mixed_precision__cuda():
    model, optimizer, _, x = _parts()

    def loss():
        with torch.autocast("cuda", enabled=False):
            return model(x).float().mean()

    return trained_with(optimizer, loss)


def float16_only_for_a_frozen_teacher__cuda():
    model, optimizer, _, x = _parts()
    teacher = nn.Linear(8, 1).cuda()

    def loss():
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
            wanted = teacher(x).float()
        return (model(x) - wanted).square().mean()

    return trained_with(optimizer, loss)
