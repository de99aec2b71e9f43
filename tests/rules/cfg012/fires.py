import torch
from torch import nn

from tests.rules.programs import trained_once


def put_into_train_mode_by_the_last_of_three():
    body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).requires_grad_(False)
    model = nn.Sequential(body, nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)

    def step():
        model.train()
        body.train()
        model.train()  # CFG012
        trained_once(model, optimizer, torch.randn(8, 4) + 1)

    return step


def called_without_gradients():
    body, head = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), nn.Linear(4, 2)
    body.requires_grad_(False)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)

    def step():
        with torch.no_grad():
            features = body(torch.randn(8, 4) + 1)  # CFG012
        trained_once(head, optimizer, features)

    return step


def _taught(wake, follow=lambda teacher: None, rest=nn.Module.eval):
    """A frozen teacher with dropout, which ``wake`` may put into train mode."""
    drops = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.Linear(4, 2))
    both = nn.ModuleDict({"teacher": drops, "student": nn.Linear(4, 2)})
    rest(both["teacher"].requires_grad_(False))
    optimizer = torch.optim.SGD(both["student"].parameters(), lr=0.1)

    def step():
        wake(both)
        x = torch.randn(8, 4)
        with torch.no_grad():
            wanted = both["teacher"](x)
        optimizer.zero_grad()
        (both["student"](x) - wanted).square().mean().backward()
        optimizer.step()
        follow(both["teacher"])

    return step


def teacher_that_its_owner_wakes():
    return _taught(lambda both: both.train())  # CFG012
