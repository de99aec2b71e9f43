import torch
from torch import nn

from tests.rules.programs import numbered, trained_once, trained_then


def train_mode_comes_back_with_the_next_epoch():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), torch.ones(2, 3, 6, 6)

    begin = model.train

    @torch.inference_mode()
    def accuracy():
        model.train(False)  # CFG009
        return model(x).mean()

    def after(number):
        if number % 10 == 4:
            accuracy()
        if number % 10 == 0:
            begin()

    return trained_then(model, x, after)


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

    model = Tagger()
    x = torch.ones(2, 5, 8)

    def score():
        with torch.no_grad():
            return model(x).mean()

    def after(number):
        if number == 8:
            model.eval()  # CFG009
            score()

    return trained_then(model, x, after)


def samples_drawn_from_a_generator_in_training():
    maker = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
    judge = nn.Linear(8, 1)
    one, other = (torch.optim.Adam(each.parameters(), lr=1e-3) for each in (maker, judge))

    @torch.no_grad()
    def sample():
        maker.eval()  # CFG009
        return maker(torch.ones(2, 4))

    def step(number):
        fake = maker(torch.randn(4, 4))
        trained_once(judge, other, fake.detach())
        one.zero_grad()
        judge(fake).mean().neg().backward()
        one.step()
        if number == 5:
            sample()

    return numbered(step)


def _validated(model, x, validate, score=lambda number: number):
    def after(number):
        if number % 4 == 0:
            validate(score(number))

    return trained_then(model, x, after)


def returns_early_where_the_score_is_not_a_new_best():
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2)), torch.ones(2, 8)
    best = {"score": 0.0}

    @torch.no_grad()
    def validate(score):
        model.eval()
        model(x)
        if score <= best["score"]:
            return score  # CFG009
        best["score"] = score
        model.train()
        return score

    return _validated(model, x, validate)


def returns_early_above_a_limit__note():
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2)), torch.ones(2, 8)

    def check(number):
        model.eval()
        with torch.no_grad():
            if model(x).mean() > number:
                return  # CFG009
        model.train()

    def seldom(number):
        check(number)

    return _validated(model, x, seldom)
