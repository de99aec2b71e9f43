import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from tests.echo_group import ranks
from tests.rules.programs import optimized, ranked, trained_by, trained_once


def only_the_last_micro_batch_is_averaged():
    model, optimizer = optimized(ranked(8, 16, 4), torch.optim.AdamW)
    taken = iter(range(100_000))

    def step():  # a pass may begin in the middle of four
        micro = next(taken) % 4
        with model.no_sync() if micro < 3 else contextlib.nullcontext():
            (model(torch.randn(8, 8)).square().mean() / 4).backward()
        if micro == 3:
            optimizer.step()
            optimizer.zero_grad()

    return step


def averaged_by_hand():
    model, optimizer = optimized(ranked(8, 4))

    def step():
        optimizer.zero_grad()
        with model.no_sync():
            for _ in range(2):
                model(torch.randn(8, 8)).square().mean().backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
            p.grad.div_(dist.get_world_size())
        optimizer.step()

    return step


def parameters_are_averaged_now_and_then():
    model, optimizer = optimized(ranked(8, 4))
    taken = iter(range(100_000))

    def step():
        optimizer.zero_grad()
        with model.no_sync():
            model(torch.randn(8, 8)).square().mean().backward()
        optimizer.step()
        if next(taken) % 4 == 3:
            for p in model.parameters():
                dist.all_reduce(p.data)
                p.data.div_(dist.get_world_size())

    return step


def a_look_at_sharpness_first():
    model, optimizer = optimized(ranked(8, 4))

    def step():
        x = torch.randn(8, 8)
        with model.no_sync():
            model(x).square().mean().backward()
        with torch.no_grad():
            moved = [p.grad * 0.05 for p in model.parameters()]
            for p, by in zip(model.parameters(), moved, strict=True):
                p.add_(by)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        with torch.no_grad():
            for p, by in zip(model.parameters(), moved, strict=True):
                p.sub_(by)
        optimizer.step()
        optimizer.zero_grad()

    return step


def a_judge_whose_gradients_are_not_wanted():
    maker, judge = ranked(8, 8), ranked(8, 1)
    makes = torch.optim.Adam(maker.parameters(), lr=1e-4)
    judges = torch.optim.Adam(judge.parameters(), lr=1e-4)

    def step():
        made = maker(torch.randn(8, 8))
        makes.zero_grad()
        with judge.no_sync():
            (1 - judge(made)).square().mean().backward()
        makes.step()
        judges.zero_grad()
        both = torch.cat([made.detach(), torch.randn(8, 8)])
        judge(both).square().mean().backward()
        judges.step()

    return step


def a_forward_outside_prepared_the_average():
    model, optimizer = optimized(ranked(8, 4))

    def step():
        loss = model(torch.randn(8, 8)).square().mean()
        with model.no_sync():
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def a_plain_module():
    model = torch.nn.Linear(8, 4)
    return trained_by(model, lambda: model(torch.randn(8, 8)).square().mean())


def evaluated_past_the_wrapper():
    model, optimizer = optimized(ranked(8, 4))

    def step():
        trained_once(model, optimizer, torch.randn(8, 8))
        model.module(torch.randn(8, 8)).square().mean().item()
        with torch.no_grad():
            model.module(torch.randn(8, 8))

    return step


def one_of_two_losses_past_the_wrapper():
    model = ranked(8, 4)

    def loss_of():
        loss = model(torch.randn(8, 8)).square().mean()
        return loss + 0.1 * model.module(torch.randn(8, 8)).abs().mean()

    return trained_by(model, loss_of)


def past_the_wrapper_and_averaged_by_hand():
    model, optimizer = optimized(ranked(8, 4))

    def step():
        optimizer.zero_grad()
        model.module(torch.randn(8, 8)).square().mean().backward()
        for each in model.parameters():
            dist.all_reduce(each.grad)
        optimizer.step()

    return step


def a_frozen_part_past_its_wrapper():
    ranks()
    encoder, model = ranked(8, 8), ranked(8, 4)
    for each in list(encoder.parameters())[:1]:
        each.requires_grad_(False)

    return trained_by(model, lambda: model(encoder.module(torch.randn(8, 8))).square().mean())


def a_judge_past_its_wrapper():
    maker, judge = ranked(8, 8), ranked(8, 1)
    makes = torch.optim.Adam(maker.parameters(), lr=1e-4)
    judges = torch.optim.Adam(judge.parameters(), lr=1e-4)

    def step():
        made = maker(torch.randn(8, 8))
        makes.zero_grad()
        (1 - judge.module(made)).square().mean().backward()
        makes.step()
        trained_once(judge, judges, torch.cat([made.detach(), torch.randn(8, 8)]))

    return step


def wrapped_twice_and_called_by_one():
    outer = ranked(8, 4)
    other = DistributedDataParallel(outer.module)
    return trained_by(other, lambda: outer(torch.randn(8, 8)).square().mean())


def the_graph_of_one_forward_twice():
    model = ranked(8, 4)

    def loss_of():
        loss = model(torch.randn(8, 8)).square().mean()
        loss.backward(retain_graph=True)
        return loss

    return trained_by(model, loss_of)
