"""Operators of a rehearsal: which calls count as one, how often they ran, and what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.base import Context
from auditor.capture.probes.rehearsal import RehearsalProbe
from auditor.capture.probes.step import operator_log
from auditor.model.devices import SHADOW
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.recordings.schema.sync import DeviceUseRow, OperatorOrderRow, OperatorRow


@contextmanager
def rehearsed(folder: Path) -> Iterator[tuple[Context, RehearsalProbe]]:
    writer = RecordingWriter(folder)
    context = Context(
        writer, Frames(writer, (__file__,)), device=SHADOW, pass_name="loud", in_step=True
    )
    probe = RehearsalProbe(context)
    probe.install()
    try:
        probe.start()
        yield context, probe
    finally:
        probe.stop()
        probe.uninstall()
        writer.close()
        write_manifest(folder, {"schema": SCHEMA, "device": "rehearse", "outcome": "completed"})


def rows_of(folder: Path) -> list[OperatorRow]:
    return [
        row for row in Recording(folder).typed_rows("operators") if isinstance(row, OperatorRow)
    ]


def orders_of(recording: Recording) -> list[OperatorOrderRow]:
    rows = recording.typed_rows("operator_order")
    return [row for row in rows if isinstance(row, OperatorOrderRow)]


def steps_of(folder: Path, make: Callable[[], Callable[[], None]], steps: int = 1):
    """Rows of so many steps of what ``make`` makes before them, on the shadow device."""
    with rehearsed(folder) as (context, probe):
        context.in_step = False
        step = make()
        for number in range(steps):
            context.step = number
            context.in_step = True
            step()
            context.in_step = False
            probe.step_end()
    return rows_of(folder)


def trained() -> Callable[[], None]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.ones(4, 8).cuda()

    def step() -> None:
        optimizer.zero_grad()
        model(x).sum().backward()
        optimizer.step()

    return step


def test_calls_that_are_alike_are_described_once_and_counted_by_step(tmp_path: Path) -> None:
    rows = steps_of(tmp_path, trained, steps=3)
    described = {row.id: row.name for row in rows if row.name}
    assert len(described) == sum(1 for row in rows if row.name)
    (addmm,) = (number for number, name in described.items() if name == "aten::addmm")
    counted = [(row.step, row.n) for row in rows if row.id == addmm]
    assert counted == [(0, 2), (1, 2), (2, 2)]
    assert {row.step for row in rows if row.name} == {0}


def test_the_order_of_a_step_and_the_lines_it_ran_for(tmp_path: Path) -> None:
    def make() -> Callable[[], None]:
        x, weight = torch.ones(4, 4).cuda(), torch.ones(4, 4, requires_grad=True, device="cuda")

        def step() -> None:
            y = x @ weight
            torch.relu(x)
            y.sum().backward()

        return step

    rows = steps_of(tmp_path, make, steps=2)
    names = {row.id: row.name for row in rows if row.name}
    recording = Recording(tmp_path)
    for order in orders_of(recording):
        told = [
            (names[number], recording.site(at))
            for number, at in zip(order.ids, order.at, strict=True)
        ]
        assert [name for name, _ in told][:2] == ["aten::mm", "aten::relu"]
        assert "aten::mm" in [name for name, _ in told][2:], "the backward's own product"
        first = told[0][1].line
        assert [site.line - first for _, site in told] == [0, 1] + [2] * (len(told) - 2)
        assert not order.cut
        counted = [row for row in rows if row.step == order.step]
        assert {row.id: row.n for row in counted} == Counter(order.ids)
    assert len(orders_of(recording)) == 2


def test_the_order_ends_where_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_log, "ORDERED", 3)
    steps_of(tmp_path, trained)
    (order,) = orders_of(Recording(tmp_path))
    assert (len(order.ids), len(order.at), order.cut) == (3, 3, True)


def test_shapes_strides_types_and_results(tmp_path: Path) -> None:
    rows = steps_of(tmp_path, trained)
    addmm = next(row for row in rows if row.name == "aten::addmm")
    bias, left, right = addmm.inputs
    assert bias is not None and left is not None and right is not None
    assert (bias.shape, left.shape, right.shape) == ([8], [4, 8], [8, 8])
    assert right.strides == [1, 8]
    assert (left.dtype, left.host) == ("float32", False)
    assert [each.shape for each in addmm.outputs] == [[4, 8]]
    (foreach,) = (row for row in rows if row.name == "aten::_foreach_add_")
    assert foreach.inputs[0] is not None and foreach.inputs[0].sizes == [64, 8, 64, 8]
    assert foreach.outputs == []
    names = {row.name for row in rows}
    assert not names & {"aten::t", "aten::view", "aten::detach", "aten::expand"}


def test_other_shapes_types_and_strides_are_other_calls(tmp_path: Path) -> None:
    def make() -> Callable[[], None]:
        x, wide = torch.ones(4, 4).cuda(), torch.ones(8, 4).cuda()

        def step() -> None:
            for each in (x, x, wide, x.half(), x.t(), x.sum(), x.sum(0)):
                each.mul(2.0)

        return step

    rows = steps_of(tmp_path, make)
    assert sorted(row.n for row in rows if row.name == "aten::mul") == [1, 1, 1, 1, 1, 2]
    assert sorted(row.n for row in rows if row.name == "aten::sum") == [1, 1]


def test_numbers_that_change_make_no_other_call_but_those_that_tell_what_it_does(
    tmp_path: Path,
) -> None:
    def make() -> Callable[[], None]:
        x, weight = torch.ones(1, 1, 8, 8).cuda(), torch.ones(1, 1, 3, 3).cuda()

        def step() -> None:
            for number in range(5):
                x.mul(float(number))
            for padding in (0, 1):
                nn.functional.conv2d(x, weight, padding=padding)

        return step

    rows = steps_of(tmp_path, make)
    assert [row.n for row in rows if row.name == "aten::mul"] == [5]
    paddings = [row.values[4] for row in rows if row.name == "aten::convolution"]
    assert paddings == [[0, 0], [1, 1]]


def test_what_runs_between_steps_is_not_counted(tmp_path: Path) -> None:
    with rehearsed(tmp_path) as (context, probe):
        x = torch.ones(4).cuda()
        context.in_step = False
        x.mul(3.0)
        context.in_step = True
        x.add(1.0)
        probe.step_end()
    names = {row.name for row in rows_of(tmp_path)}
    assert "aten::add" in names
    assert "aten::mul" not in names


def test_a_host_tensor_among_the_arguments_is_marked(tmp_path: Path) -> None:
    rows = steps_of(tmp_path, lambda: lambda: torch.ones(4).cuda().copy_(torch.ones(4)))
    (copy,) = (row for row in rows if row.name == "aten::copy_")
    assert [each is not None and each.host for each in copy.inputs[:2]] == [False, True]


@pytest.mark.parametrize("layer", [nn.GRU, nn.LSTM, nn.RNN])
def test_recurrent_layers_are_named_as_such(tmp_path: Path, layer: type[nn.Module]) -> None:
    def make() -> Callable[[], None]:
        model, x = layer(4, 4).cuda(), torch.ones(3, 2, 4).cuda()
        return lambda: model(x)[0].sum().backward()

    names = {row.name for row in steps_of(tmp_path, make)}
    assert names & set(operator_log.RECURRENT.values())
    assert "aten::addmm" not in names


def test_calls_beyond_the_bound_are_only_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator_log, "MOST", 3)

    def make() -> Callable[[], None]:
        tensors = [torch.ones(size).cuda() for size in range(1, 6)]

        def step() -> None:
            for each in tensors:
                each.mul(2.0)

        return step

    rows = steps_of(tmp_path, make)
    assert sum(1 for row in rows if row.name) == 3
    assert [row.n for row in rows if row.id == operator_log.UNDESCRIBED] == [2]


def test_what_has_no_strides_is_counted_and_costs_nothing(tmp_path: Path) -> None:
    def make() -> Callable[[], None]:
        sparse = torch.eye(4).to_sparse().cuda()
        dense = torch.ones(4, 4).cuda()
        return lambda: torch.sparse.mm(sparse, dense)

    rows = steps_of(tmp_path, make)
    assert sum(row.n for row in rows if row.id == operator_log.UNDESCRIBED) > 0


def test_that_something_was_given_to_the_compiler_is_told_in_every_step(tmp_path: Path) -> None:
    def make() -> Callable[[], None]:
        model, x = torch.compile(nn.Linear(4, 4).cuda()), torch.ones(2, 4).cuda()
        return lambda: model(x)

    rows = steps_of(tmp_path, make, steps=2)
    (number,) = (row.id for row in rows if row.name == operator_log.COMPILER)
    assert [(row.step, row.n) for row in rows if row.id == number] == [(0, 1), (1, 1)]


def test_the_arithmetic_of_products_is_told(tmp_path: Path) -> None:
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high")
        steps_of(tmp_path / "high", trained)
        torch.set_float32_matmul_precision("highest")
        steps_of(tmp_path / "highest", trained)
    finally:
        torch.set_float32_matmul_precision(before)
    told = {
        name: {
            row.tf32_matmul
            for row in Recording(tmp_path / name).typed_rows("device_use")
            if isinstance(row, DeviceUseRow)
        }
        for name in ("high", "highest")
    }
    assert told == {"high": {True}, "highest": {False}}
