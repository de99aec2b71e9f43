import torch
from torch import nn

from tests.rules.programs import trained_once


def validation_that_leaves_dropout_off():
    model, count = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 1)), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def validate():
        model.eval()  # CFG009
        with torch.no_grad():
            model(torch.ones(4, 8))

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        count[0] += 1
        if count[0] == 6:
            validate()

    return step


def train_mode_comes_back_with_the_next_epoch():
    model, count = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), [0]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    @torch.inference_mode()
    def accuracy():
        model.train(False)  # CFG009
        return model(torch.ones(2, 3, 6, 6)).mean()

    def step():
        if count[0] % 10 == 0:
            model.train()
        trained_once(model, optimizer, torch.ones(2, 3, 6, 6))
        count[0] += 1
        if count[0] % 10 == 4:
            accuracy()

    return step


def own_eval_method_and_an_evaluation_in_another_function():
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(8, 8, num_layers=2, dropout=0.3, batch_first=True)
            self.out = nn.Linear(8, 3)
            self.asked = False

        def eval(self):
            self.asked = True
            return super().eval()

        def forward(self, x):
            return self.out(self.rnn(x)[0])

    model, count = Tagger(), [0]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def score():
        with torch.no_grad():
            return model(torch.ones(2, 5, 8)).mean()

    def step():
        trained_once(model, optimizer, torch.ones(2, 5, 8))
        count[0] += 1
        if count[0] == 8:
            model.eval()  # CFG009
            score()

    return step


def samples_drawn_from_a_generator_in_training():
    maker = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    judge, count = nn.Linear(8, 1), [0]
    one, other = (torch.optim.Adam(each.parameters(), lr=1e-3) for each in (maker, judge))

    @torch.no_grad()
    def sample():
        maker.eval()  # CFG009
        return maker(torch.ones(2, 4))

    def step():
        fake = maker(torch.randn(4, 4))
        other.zero_grad()
        judge(fake.detach()).mean().backward()
        other.step()
        one.zero_grad()
        judge(fake).mean().neg().backward()
        one.step()
        count[0] += 1
        if count[0] == 5:
            sample()

    return step
