"""Why a piece of held_to_torch.py is not counted alike on both sides, or goes another way.

Each was followed to its place in torch's sources, or to the zeros that the null device reads.
Files are below aten/src/ATen unless they begin with torch/.
"""

_PRINT = "torch/_tensor_str.py reads values one by one; one print"
_SVD = "cuda/linalg/BatchLinearAlgebraLib.cpp: convergence and errors are read; one operator"
_COALESCE = (
    "Thrust's sort and sums wait by themselves, and torch knows nothing of it: no warning; one "
    "operator"
)
_CTC = (
    "native/cuda/LossCTC.cu: three small tensors go up, targets' lengths are checked; one operator"
)
_SECOND = "the gradient of a gradient: its formula looks for zeros once more, which is not told"
_RAISED = (
    "parted: zeros do not pass the check, so that torch raises (and its message prints values)"
)

EXPLAINED = {
    "constructs/repeats": "parted after the same wait: native/Repeat.cpp reads whether a count is "
    "negative as well, and raises on zeros",
    "constructs/one_hot_of_a_device_number": "parted after the same wait: of zeros the number of "
    "classes is not positive, and torch raises",
    "constructs/bincount": "native/cuda/SummaryOps.cu: minimum and maximum are read",
    "constructs/histogram": "native/cuda/SummaryOps.cu: both bounds are read",
    "constructs/shown": _PRINT,
    "constructs/singular_values": _SVD,
    "constructs/matrix_exponential": "degrees come to the host and go up again; one operator",
    "constructs/validated_distribution": _RAISED,
    "constructs/ctc_lengths_on_device": _CTC,
    "constructs/ctc_lengths_on_host": _CTC,
    "constructs/sparse_product": _COALESCE,
    "constructs/padded_encoder": "parted: of zeros `equal` is false, and the fast path is not taken",
    "sync_zoo/percent_s": _PRINT,
    "sync_zoo/f_string_of_a_vector": _PRINT,
    "sync_zoo/spike_repeat_interleave": "parted: as constructs/repeats",
    "sync_zoo/spike_bincount": "as constructs/bincount",
    "sync_zoo/line_in_a_hook": "parted after the same wait: of zeros the hook returns a number, and "
    "torch refuses it",
    "sync_zoo/assert_finite": "parted after the same wait: of zeros the assertion fails",
    "sync_zoo/distribution_that_validates": _RAISED,
    "zoo/lstm_dropout": "native/cudnn/RNN.cpp: the first LSTM with dropout after a new seed reads "
    "it once; not told, as no step but the first has it",
    "zoo/transformer_padded": "parted: as constructs/padded_encoder",
    "zoo/function_mode": "the program's own TorchFunctionMode stands between: the rehearsal names "
    "the line that moves the tensor, torch the mode's",
    "zoo/ctc": _CTC,
    "zoo/samplers": _RAISED,
    "zoo/statistics": "as constructs/bincount",
    "zoo/algebra": _SVD,
    "zoo/asgd": "torch's default for ASGD on CUDA is foreach; a rehearsal steps parameter by "
    "parameter, as its foreach differs from the CPU in the last bits",
    "zoo/lbfgs": "parted: of zeros the line search ends early",
    "zoo/pickled": "pickle (not torch.save) sends each storage up twice (torch/storage.py, the old "
    "format)",
    "zoo/numbers": "parted after the same waits: of zeros a range is empty",
    "zoo/sparse_gradient": _COALESCE,
    "zoo/sparse_tensor": _COALESCE,
    "zoo/jit_trace": "torch.jit.trace compares what it traced, and of zeros by more reads",
    "zoo/profiled": "torch.profiler itself waits for the device when it stops",
    "zoo/eigvals": "parted: of zeros `input tensor should not contain infs or NaNs` is raised",
    "zoo/svdvals": _SVD,
    "zoo/out_of_values": _SVD,
    "zoo/conditions": _SVD,
    "zoo/nuclear_norm": _SVD,
    "zoo/pseudo_inverse": _SVD,
    "zoo/product": _SECOND,
    "zoo/product_of_rows": _SECOND,
    "zoo/product_of_masked": _SECOND,
    "zoo/product_in_autocast": _SECOND,
    "zoo/running_product": _SECOND,
    "zoo/determinant": _SECOND,
    "zoo/attention_with_a_mask": "on CUDA another kernel is chosen, which has no second derivative",
    "zoo/forward_mode": "an operator that waits, and its derivative at the same call",
    "corpus/hs02_bool_guards__bad": "parted: of zeros no loss is better than the best, so that one "
    "`float(loss)` is not reached",
    "examples/energy_flow/broken": "anomaly mode reads each gradient: on CUDA the GRU is one "
    "operator of cuDNN's, in a rehearsal many",
}
"""Piece -> the reason; "parted" where the zeros that the null device reads led another way."""

UNWARNED = {
    "constructs/into_pageable_non_blocking": "device to pageable memory: the driver waits, torch "
    "does not ask it to",
    "constructs/synchronize": "asked for",
    "constructs/accelerator_synchronize": "asked for",
    "constructs/event_synchronize": "asked for",
    "constructs/empty_cache": "cudaFree waits",
    "constructs/sparse_product": "Thrust",
    "sync_zoo/host_buffer_that_receives": "device to pageable memory",
    "zoo/sparse_gradient": "Thrust",
    "zoo/sparse_tensor": "Thrust",
    "zoo/profiled": "the profiler asks for it",
}
"""Piece -> why the host waits there and torch does not warn."""

VERSIONS = {
    "normal_of_tensors": "2.6 and 2.8 read (pull request 186508); the rehearsal says so before 2.13",
    "combinations": "2.6 and 2.8 by masked_select, twice; the rehearsal says so before 2.14",
    "ctc_lengths_on_device": "6 waits in 2.6 and 2.8",
    "ctc_lengths_on_host": "4 waits in 2.6 and 2.8",
    "saved_in_pinned_memory": "2.6 and 2.8 wait for the copy, as the rehearsal does there",
}
"""Construct -> what torch 2.6.0+cu124 and 2.8.0+cu128 do on the null device, where they differ."""
