import copy
import itertools

import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import numbered, optimized, trained_by, trained_once, trained_with
from tests.rules.waste002.fires import _followed


def hidden_state_of_the_next_step():
    rnn, head = nn.LSTM(16, 32), nn.Linear(32, 16)
    state = [None]

    def loss():
        x = torch.randn(8, 4, 16)
        out, (h, c) = rnn(x, state[0])
        state[0] = (h.detach(), c.detach())
        return F.mse_loss(head(out), x)

    return trained_with(torch.optim.Adam([*rnn.parameters(), *head.parameters()]), loss)


def output_returned():
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    extra = nn.Linear(32, 512)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        x = torch.randn(8, 32)
        opt.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        opt.step()
        return {"loss": loss, "features": extra(x)}

    return step


def metric_updated_in_place():
    model, opt = optimized(nn.Linear(32, 8), lr=0.1)
    confusion = torch.zeros(8, 8)

    def step():
        x, y = torch.randn(64, 32), torch.randint(0, 8, (64,))
        opt.zero_grad()
        logits = model(x)
        F.cross_entropy(logits, y).backward()
        opt.step()
        confusion.index_put_((y, logits.argmax(1)), torch.ones(64), accumulate=True)

    return step


def logged_when_it_is_computed():
    model, opt = optimized(nn.Linear(32, 8), lr=0.1)

    def step(number):
        x, y = torch.randn(64, 32), torch.randint(0, 8, (64,))
        opt.zero_grad()
        logits = model(x)
        F.cross_entropy(logits, y).backward()
        opt.step()
        if number % 2 == 0:
            print("acc", (logits.argmax(1) == y).float().mean().item())

    return numbered(step)


def batch_norm_reestimated():
    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 8))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        trained_once(model, opt, torch.randn(8, 3, 8, 8))
        with torch.no_grad():
            for module in (model[0], model[1]):
                pass
            model[1](model[0](torch.randn(8, 3, 8, 8)))

    return step


def hooks_collect_features():
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    kept = {}
    model[0].register_forward_hook(lambda m, a, out: kept.update(first=out.detach().abs().sort().values))
    return trained_by(model, lambda: model(torch.randn(64, 32)).square().mean())


def numpy_reads_it():
    model, far = nn.Linear(32, 64), nn.Linear(32, 512)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = []

    def step():
        x = torch.randn(32, 32)
        trained_once(model, opt, x)
        kept.append(float(far(x).detach().numpy().sum()))
        kept.append(sum(far(x[:4]).detach().tolist()[0]))

    return step


def compiled_model():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(32, 512), nn.Linear(32, 8)

        def forward(self, x):
            self_unused = self.a(x).relu()
            return self.b(x)

    model = Two()
    compiled = torch.compile(model, backend="eager")

    def loss():
        return compiled(torch.randn(8, 32)).square().mean()

    return trained_with(torch.optim.SGD(model.b.parameters(), lr=0.1), loss)


def distillation():
    student, teacher = nn.Linear(32, 8), nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 8)).eval()

    def loss():
        x = torch.randn(64, 32)
        with torch.no_grad():
            wanted = teacher(x).softmax(-1)
        return F.kl_div(student(x).log_softmax(-1), wanted, reduction="batchmean")

    return trained_by(student, loss)


def average_of_weights():
    model, ema = nn.Linear(256, 256), nn.Linear(256, 256).requires_grad_(False)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        trained_once(model, opt, torch.randn(4, 256))
        with torch.no_grad():
            for mine, his in zip(ema.parameters(), model.parameters()):
                mine.lerp_(his, 0.01)

    return step


def read_by_a_thread_of_ones_own():
    import queue
    import threading
    import weakref

    encoder, head = nn.Linear(32, 256), nn.Linear(32, 4)
    opt = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
    waiting, told = queue.Queue(), []

    def watch():
        with torch.no_grad():
            while (made := waiting.get()) is not None:
                told.append(made.norm().item())
                del made
                waiting.task_done()

    threading.Thread(target=watch, daemon=True).start()

    def step():
        x, y = torch.randn(64, 32), torch.randint(0, 4, (64,))
        opt.zero_grad()
        with torch.no_grad():
            waiting.put(encoder(x))
        F.cross_entropy(head(x), y).backward()
        waiting.join()
        opt.step()

    weakref.finalize(step, waiting.put, None)  # the thread ends with the step
    return step


def read_by_another_process():
    import torch.multiprocessing as mp

    encoder, head = nn.Linear(32, 256), nn.Linear(32, 4)
    opt = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
    sent = mp.get_context("fork").SimpleQueue()

    def step():
        x, y = torch.randn(64, 32), torch.randint(0, 4, (64,))
        opt.zero_grad()
        with torch.no_grad():
            sent.put(encoder(x))
        F.cross_entropy(head(x), y).backward()
        opt.step()
        sent.get()

    return step


def zeros_that_are_filled_in_the_same_expression():
    model = nn.Linear(32, 4)

    def loss():
        x = torch.zeros(512, 32).normal_()
        return model(x + torch.zeros_like(x).uniform_()).square().mean()

    return trained_by(model, loss)


def sparse_gradients_and_products():
    emb, head = nn.Embedding(500, 64, sparse=True), nn.Linear(64, 4)
    opt = torch.optim.SGD(head.parameters(), lr=0.1)
    rows = torch.optim.SparseAdam(list(emb.parameters()), lr=0.1)
    graph = torch.eye(256).to_sparse()

    def step():
        ids, y = torch.randint(0, 500, (256,)), torch.randint(0, 4, (256,))
        opt.zero_grad()
        rows.zero_grad()
        F.cross_entropy(head(graph @ emb(ids)), y).backward()
        opt.step()
        rows.step()

    return step


def counters_copied_into_an_average_of_weights():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)) for _ in range(6)])
    average = copy.deepcopy(model)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    pairs = list(zip(average.buffers(), model.buffers(), strict=True))

    def step():
        trained_once(model, opt, torch.randn(16, 8))
        for ours, theirs in pairs:
            ours.copy_(theirs)

    return step


def norms_kept_for_the_log():
    model = nn.Sequential(*[nn.Linear(32, 32) for _ in range(4)])
    params = list(model.parameters())
    opt = torch.optim.SGD(params, lr=0.1)
    seen = []

    def step():
        opt.zero_grad()
        model(torch.randn(64, 32)).square().mean().backward()
        seen.append(torch.stack(torch._foreach_norm([each.grad for each in params])).norm())
        opt.step()

    return step


def read_in_every_second_step():
    body, aux, head = nn.Linear(64, 64), nn.Linear(64, 512), nn.Linear(64, 1)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
    done, shown = itertools.count(), []

    def step():
        optimizer.zero_grad()
        h = body(torch.randn(32, 64))
        spread = aux(h).std()
        head(h).square().mean().backward()
        optimizer.step()
        if next(done) % 2 == 0:
            shown.append(spread.item())

    return step


def average_that_is_loaded__no_note():
    def update(target, online):
        state = target.state_dict()
        for name, value in online.state_dict().items():
            state[name] = 0.9 * state[name] + 0.1 * value
        target.load_state_dict(state)

    return _followed(update)


def average_in_place__no_note():
    def update(target, online):
        state = target.state_dict()
        for name, value in online.state_dict().items():
            state[name].mul_(0.9).add_(value, alpha=0.1)

    return _followed(update)


def average_copied_from_the_dictionary__no_note():
    def update(target, online):
        state = target.state_dict()
        for name, value in online.state_dict().items():
            state[name] = 0.9 * state[name] + 0.1 * value
        for name, each in target.named_parameters():
            each.copy_(state[name])

    return _followed(update)


def average_named_in_a_loop_and_copied__no_note():
    def update(target, online):
        for kept, new in zip(target.parameters(), online.parameters(), strict=True):
            held = kept
            kept = kept * 0.9 + new * 0.1  # noqa: PLW2901
            held.copy_(kept)

    return _followed(update)
