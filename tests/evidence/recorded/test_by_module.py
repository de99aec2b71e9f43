"""The numbers of a module: its own, and those of all below it."""

from types import SimpleNamespace

import pytest

from auditor.evidence.recorded.by_module import _Module, _samples
from auditor.recordings.schema.data import BatchRow, LoaderRow
from auditor.recordings.schema.run import ModuleRow


@pytest.mark.parametrize(("timed", "forward", "backward"), [(True, 15.0, 40.0), (False, 6.0, 12.0)])
def test_times_where_they_were_measured_else_operations_of_a_step(timed, forward, backward):
    root = _Module()
    for name, us, flops in (("a", 10.0, 8), ("a.b", 5.0, 4)):
        row = ModuleRow(name=name, kind="Linear", steps=2, us=us, backward_us=20.0, flops=flops)
        row.backward_flops, row.saved_bytes = 2 * flops, 64
        root.add(name.split("."), row, timed)
    assert (root.forward, root.backward) == (forward, backward)
    assert (root.flops, root.saved_bytes) == (18.0, 128)
    assert list(root.inside) == ["a"] and list(root.inside["a"].inside) == ["b"]
    assert root.inside["a"].inside["b"].saved_bytes == 64


@pytest.mark.parametrize(("loaders", "samples"), [((0,), 32.0), ((1,), 0.0), ((), 0.0)])
def test_samples_of_a_step_are_those_of_the_loader_that_gave_them(loaders, samples):
    given = (BatchRow(loader=0, step=step, pass_name="quiet", n=2) for step in range(4))
    kept = {BatchRow: tuple(given)}
    kept[LoaderRow] = tuple(LoaderRow(loader=each, batch_size=16) for each in loaders)
    evidence = SimpleNamespace(rows=kept.__getitem__)
    assert _samples(evidence, 4) == samples
