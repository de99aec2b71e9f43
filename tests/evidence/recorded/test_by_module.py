"""The numbers of a module: its own, and those of all below it."""

import pytest

from auditor.evidence.recorded.by_module import _Module, by_module
from auditor.recordings.schema.run import ModuleRow
from tests.evidence.recorded.rows import loud, quiet, steps


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


def layer(name, us, backward_us, kind="Linear", **more):
    facts = {"saved_bytes": 8, "steps": 2, **more}
    return loud(0, name=name, kind=kind, us=us, backward_us=backward_us, **facts)


def test_alike_layers_stand_together_the_costliest_first(seen):
    """Two numbered layers, a head, and two layers of another shape inside what was not called."""
    rows = [
        layer("", 2.0, 3.0, kind="", saved_bytes=1),
        layer("N.1", 1.0, 2.0),
        layer("N.2", 2.0, 5.0),
        layer("N.head", 20.0, 30.0, kind="Head", at=0),
        layer("N.bags.3", 10.0, 15.0, kind="Bag", tokens=12),
        layer("N.bags.4", 4.0, 6.0),
    ]
    numbers = {"pass": "numbers", "step": 0, "name": "N.1", "kind": "Linear", "steps": 2}
    rows.append({**numbers, "flops": 4 * 10**6, "backward_flops": 2 * 10**6, "types": {}})
    rows[-1]["types"] = {"float32": 6 * 10**6}
    given = [quiet(step, loader=1, n=2) for step in range(4)]
    found = by_module(
        seen(
            sites=[3],
            modules=rows,
            steps=steps(4, "quiet"),
            batches=[*given, loud(0, loader=2, n=9)],
            loaders=[{"loader": 1, "batch_size": 8}, {"loader": 2, "batch_size": 99}],
        )
    )
    shown = [(use.path, use.kind, use.alike, use.saved_bytes) for use in found.modules]
    assert shown == [
        ("N.head", "Head", 1, 8),
        ("N.bags.3", "Bag", 1, 8),
        ("N.bags.4", "Linear", 1, 8),
        ("N.1-2", "Linear", 2, 16),
    ]
    head, alike = found.modules[0], found.modules[-1]
    assert (head.forward, head.backward, head.site.line) == (0.2, 0.3, 3)
    assert (alike.forward, alike.backward, alike.flops) == (0.03, 0.07, 3e6)
    assert (found.timed, found.flops, found.flops_per_s) == (True, 3e6, 3e9)
    assert (found.samples_per_s, found.tokens_per_s, found.peak) == (16e3, 6e3, None)


def test_the_share_of_the_peak_is_of_the_types_that_were_computed(seen):
    """An H200 makes 67 and 989 TFLOP per second: in two steps a millisecond of each, of 4 ms."""
    types = {"float32": 67 * 10**9, "bfloat16": 989 * 10**9}
    row = {"pass": "numbers", "step": 0, "name": "N", "kind": "N", "steps": 2, "types": types}
    manifest = {"device": "cuda", "environment": {"device": "NVIDIA H200"}}
    made = {"modules": [row | {"flops": 8}], "steps": steps(3, "quiet", us=2000.0)}
    found = by_module(seen(manifest=manifest, **made))
    assert (found.timed, found.peak) == (False, pytest.approx(0.5))
    assert by_module(seen(inside="cpu", **made)).peak is None
    assert by_module(seen(inside="none", modules=[row | {"name": ""}], steps=[])) is None
