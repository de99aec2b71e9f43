"""Near misses: CFG002 must stay silent, or a note, on all of these."""

from tests.timeline.programs import Program

NORM = [[8, 16, 62, 62], [16], [16], [16], [16], [], [], [], []]


def _step(program, *, bias=(16,), between="", norm="aten::batch_norm", dims=NORM, shapes=True, adding=10.0):
    sizes = {"Input Dims": [[8, 3, 64, 64], [16, 3, 3, 3], list(bias), [], [], [], []]} if shapes else {}
    with program.step():
        with program.inside("aten::conv2d", **sizes):
            program.operator("aten::cudnn_convolution", 80.0, runs="sm80_xmma_fprop")
            if bias:
                program.operator("aten::add_", adding)
        if between:
            program.operator(between, 10.0)
        program.operator(norm, 20.0, **({"Input Dims": dims} if shapes else {}))


def _steps(**how):
    program = Program()
    for _ in range(3):
        _step(program, **how)
    return program.trace()


def no_bias__trace():
    return _steps(bias=())


def an_activation_in_between__trace():
    return _steps(between="aten::relu")


def a_layer_norm_keeps_the_bias__trace():
    return _steps(norm="aten::layer_norm")


def a_norm_over_other_channels__trace():
    return _steps(dims=[[8, 32, 62, 62], [32], [32], [32], [32], [], [], [], []])


def no_shapes_were_recorded__trace():
    return _steps(shapes=False)


def a_bias_that_costs_nothing__trace():
    return _steps(adding=0.1)
