"""Near misses: KERN003 must stay silent, or a note, on all of these."""

from tests.timeline.programs import Program


def short_kernels_behind_a_full_queue__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 900.0)
            for _ in range(40):
                program.operator("aten::add", 5.0, host_us=8.0)
    return program.trace()


def one_parameter_after_the_other_is_the_optimizer_rules_finding__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 60.0)
            with program.optimizer("SGD"):
                for _ in range(80):
                    program.operator("aten::add_", 2.0, host_us=20.0)
    return program.trace()


def a_graph_that_was_launched_once__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            program.operator("aten::mm", 3.0)
            for _ in range(60):
                program.free = max(program.free, program.host)
                program.events.append({**program.events[-1], "ts": program.free, "dur": 4.0})
                program.free += 4.0
    return program.trace()


def long_kernels__trace():
    program = Program()
    for _ in range(3):
        with program.step():
            for _ in range(30):
                program.operator("aten::mm", 50.0, host_us=20.0)
    return program.trace()
