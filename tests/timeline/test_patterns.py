"""Patterns of operators, conversions, arithmetic of products, with exact rows and times."""

from auditor.timeline import Timeline
from tests.timeline.kineto import write
from tests.timeline.programs import Program


def line(tmp_path, program, **head):
    return Timeline.of(write(tmp_path, program.trace(**head)))


def test_broken_shapes_are_no_sizes(tmp_path):
    program = Program()
    for sizes in ([], [[4]], [[4, 7]], ["x", "y"], [[], []]):
        program.operator(
            "aten::mm", 10.0, **{"Input Dims": sizes, "Input type": ["c10::Half", "c10::Half"]}
        )
    assert line(tmp_path, program).awkward_products.sizes == ()
