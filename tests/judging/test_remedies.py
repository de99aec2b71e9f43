"""Remedies that need the source: the patch that a rule proposes, made on a file as users write it,
or no patch.
"""

from dataclasses import replace

import pytest
from auditor.rules.amp.precision import FP32, Precision
from auditor.rules.cfg.autotuning import Autotuning

from auditor.evidence.recorded.amp import Amp
from auditor.evidence.recorded.batches import Loader
from auditor.evidence.recorded.copies import Copies
from auditor.evidence.recorded.reads import Expression, Reads
from auditor.evidence.recorded.step_pattern import StepPattern
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.evidence.trace.patterns import OptimizerCalls
from auditor.judging import catalogue
from auditor.model import Finding, Site
from auditor.patch import plan
from tests.rules.asking import copied, happened, read

RULES = {rule.code: rule for rule in catalogue.rules()}

TRAINER = """\
import torch
from torch.cuda.amp import GradScaler

optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = GradScaler()


def step(x):
    scaler.scale(model(x)).backward()
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
CLIP = Site("t.py", 10, "", "clip_grad_norm_(model.parameters(), 1.0)")
FOREACH = OptimizerCalls(
    names=("AdamW",), calls=5, steps=5, marked=True, launches_per_call=12, foreach=9, host_share=0.3
)
ONE_BY_ONE = replace(FOREACH, launches_per_call=500, foreach=0)


def patched(code: str, finding: Finding, text: str) -> str | None:
    """The text as the rule's patch leaves it; None where there is no patch."""
    remedy = RULES[code]().remedy(finding)
    if not remedy.edits:
        return None
    planned = plan(remedy.edits, lambda file: text.encode())
    assert not planned.refused
    assert not remedy.safe or code in ("AMP005", "DATA003", "SYNC010")
    return planned.files[0].after.decode()


def proposed(code: str, text: str, *tables, ask="detect", configs=()) -> str | None:
    """The text as the patch of the rule's one finding leaves it."""
    (finding,) = getattr(RULES[code](), ask)(*tables, Source({"t.py": text}), *configs)
    return patched(code, finding, text)


FUSED = FOREACH, "OPT003", "detect"
ONE = ONE_BY_ONE, "OPT001", "in_trace"


@pytest.mark.parametrize(
    ("seen", "before", "after"),
    [
        (FUSED, "lr=1e-3", "lr=1e-3, fused=True"),
        (FUSED, "foreach=True", None),  # torch refuses both
        (FUSED, "lr=1e-3)\nother = torch.optim.AdamW(p", None),  # which one it is cannot be told
        (ONE, "foreach=False", "foreach=True"),
        (ONE, "lr=1e-3", None),
    ],
)
def test_switches_of_the_optimizer(seen, before, after):
    calls, code, ask = seen
    text, wanted = (each and TRAINER.replace("lr=1e-3", each) for each in (before, after))
    assert proposed(code, text, calls, ask=ask, configs=(Configs(),)) == wanted
    assert (
        code == "OPT001"
        or proposed(code, text.replace("AdamW", "Mine"), calls, configs=(Configs(),)) is None
    )


IN_FP32 = Precision(
    capability=8, marked=True, busy=1.0, kernel_us=100.0, matmul_us=((FP32, 100.0),)
)


def amp(what, *steps):
    return Amp(12, tuple(happened(what, CLIP, step) for step in steps))


@pytest.mark.parametrize(
    ("code", "table", "before", "after"),
    [
        (
            "AMP002",
            IN_FP32,
            "import GradScaler\n",
            'import GradScaler\n\ntorch.set_float32_matmul_precision("high")\n',
        ),
        (
            "AMP006",
            amp("clip_scaled", *range(12)),
            "    clip_grad",
            "    scaler.unscale_(optimizer)\n    clip_grad",
        ),
        ("AMP005", amp("old_scaler", 3), "= GradScaler()", '= torch.amp.GradScaler("cuda")'),
    ],
)
def test_patches_of_precision(code, table, before, after):
    assert proposed(code, TRAINER, table) == TRAINER.replace(before, after)


def copies(*rows, loader=None):
    """Rows of line, what and facts, on each of 12 steps; the loader is made at a line."""
    made = tuple(
        copied(Site("t.py", line), what, step, **facts)
        for line, what, facts in rows
        for step in range(12)
    )
    made_at = Site("t.py", loader) if loader else None
    return Copies("rehearsal", 12, made, {0: Loader(0, made_at=made_at)} if loader else {})


@pytest.mark.parametrize(
    ("before", "after", "safe"),
    [
        ("torch.zeros(8).to(device)", "torch.zeros(8, device=device)", True),
        ("torch.randn(8).to(device)", "torch.randn(8, device=device)", False),
        (
            "torch.tril(torch.ones(8, 8)).to(device)",
            "torch.tril(torch.ones(8, 8, device=device))",
            True,
        ),
    ],
)
def test_a_tensor_is_made_on_the_device(before, after, safe):
    text = f"x = {before}\n"
    seen = copies((1, "made on the host", {"bytes": 32, "call": "to"}))
    (finding,) = RULES["SYNC010"]().detect(seen, Source({"t.py": text}))
    assert patched("SYNC010", finding, text) == f"x = {after}\n"
    assert RULES["SYNC010"]().remedy(finding).safe is safe


LOOP = "batches = DataLoader(data, shuffle=True)\nfor images, labels in batches:\n    "
PINNED = ("shuffle=True", "shuffle=True, pin_memory=True")


@pytest.mark.parametrize(
    ("lines", "calls", "wait", "by"),
    [
        (["x = images.reshape(-1, 8).to(device)", "y = labels.to(device)"], ("to", "to"), "(device", 0),
        (["real = images.type(Tensor)"], ("type",), "(Tensor", 0),
        (["buffer[:] = images"], ("",), "", 3),
        (["x = images.to(device)", "buffer[:] = images"], ("to", ""), "", 4),
        (["x = images.to(device, non_blocking=wanted())"], ("to",), "", 3),
    ],
)  # fmt: skip
def test_lines_that_move_a_batch_stop_to_wait_when_it_is_pinned(lines, calls, wait, by):
    """Unless a copy, at line ``by``, waits all the same."""
    text = LOOP + "\n    ".join(lines) + "\n"
    facts = {"bytes": 9**6, "loader": 0}
    rows = [(3 + at, "batch", facts | {"call": call}) for at, call in enumerate(calls)]
    (finding,) = RULES["DATA003"]().detect(
        copies(*rows, loader=1), Source({"t.py": text}), Configs()
    )
    assert ("copied to the device at t.py:3 and 1 more line on" in finding.message) == (
        len(lines) > 1
    )
    assert (finding.per_step, finding.severity) == (len(lines), None)
    wanted = text.replace(*PINNED).replace(f"{wait})", f"{wait}, non_blocking=True)")
    assert patched("DATA003", finding, text) == (wanted if wait else None)
    assert (f"t.py:{by} still waits" in RULES["DATA003"]().remedy(finding).text) is not bool(wait)


TO, COPY = {"bytes": 1024, "call": "to"}, {"bytes": 1024, "call": "copy_"}
COMPARED = 'x = x.to(device, non_blocking=device == "cuda")'
WAS = "non_blocking=device == 'cuda', which was False"
NUMBERS = {"bytes": 16, "written": True}


@pytest.mark.parametrize(
    ("code", "line", "what", "facts", "said", "advice"),
    [
        ("SYNC006", "", "", {"bytes": 1024, "index": True}, "an index on the host", "a tensor on the device before its first use"),
        ("SYNC006", "", "", {"bytes": 1024}, "pageable memory, no non_blocking=True", "Make the tensor on the device"),
        ("SYNC006", COMPARED, "tensor", TO, WAS, "compare torch.device(device).type"),
        ("SYNC006", "x = x.to(device, non_blocking=False)", "tensor", TO, "non_blocking=False)", ""),
        ("SYNC006", "kept.copy_(x, non_blocking=False)", "tensor", COPY, "non_blocking=False)", ""),
        ("SYNC006", "kept.copy_(x, fast)", "tensor", COPY, "non_blocking=fast, which was False", ""),
        ("SYNC006", "kept.copy_(x)", "tensor", COPY, "no non_blocking=True)", ""),
        ("SYNC006", "x = x.to(device)", "tensor", TO, "no non_blocking=True)", ""),
        ("SYNC011", "", "constant", NUMBERS, "Python numbers (16 B) are sent", "torch.full"),
        ("SYNC011", "", "constant", {"bytes": 16, "written": False}, "numbers (16 B) made on the host are sent", "are new on each step"),
    ],
)  # fmt: skip
def test_what_is_said_of_a_copy(code, line, what, facts, said, advice):
    """A written non_blocking is never called missing."""
    tables = (Source({"t.py": line + "\n"}), Configs()) if code == "SYNC006" else ()
    (finding,) = RULES[code]().detect(copies((1, what or "tensor", facts)), *tables)
    assert said in finding.message
    assert advice in RULES[code]().remedy(finding).text


def reads(text, *rows):
    """The one finding of SYNC001 for reads, given as facts, on each of 12 steps."""
    made = tuple(read(Site("t.py", 1), step, **facts) for facts in rows for step in range(12))
    (finding,) = RULES["SYNC001"]().detect(Reads("rehearsal", 12, made), Source({"t.py": text}))
    return finding, RULES["SYNC001"]().remedy(finding)


@pytest.mark.parametrize(
    ("via", "advice"),
    [
        ("torch/distributions/distribution.py:__init__", "validate_args=False"),
        (
            (
                "torchmetrics/functional/classification/stat_scores.py:"
                "_multiclass_stat_scores_tensor_validation"
            ),
            "validate_args=False",
        ),
        ("torchmetrics/aggregation.py:_cast_and_nan_check_input", 'nan_strategy="disable"'),
        ("transformers/trainer.py:_inner_training_loop", "logging_nan_inf_filter=False"),
        ("transformers/trainer.py:_maybe_log_save_evaluate", "not yours to edit"),
        ("torchmetrics/metric.py:compute", "not yours to edit"),
        (
            "torch/distributions/categorical.py:sample",
            "inside torch/distributions/categorical.py:sample",
        ),
        ("", "running tensor"),
    ],
)
def test_what_to_do_about_a_read_depends_on_who_reads(via, advice):
    by = {"expression": Expression(via=via, text="Normal(mean, std)")}
    assert advice in reads("d = Normal(mean, std)\n", by)[1].text


def test_functions_of_a_framework_are_counted_one_by_one():
    functions = {"lib/a.py:log": 1, "lib/b.py:check": 3}
    by = [{"expression": Expression(via=via), "n": n} for via, n in functions.items()]
    said = "(inside lib/b.py:check 3 per step, lib/a.py:log 1 per step)"
    assert said in reads("train()\n", *by)[0].message


@pytest.mark.parametrize(
    ("kind", "via", "checks", "advice"),
    [
        ("check", "", True, "inv_ex"),
        ("item", "", False, "running tensor"),
        ("check", "torch/distributions/lowrank.py:rsample", True, "not yours to edit"),
    ],
)
def test_a_check_of_linalg_is_no_number_that_the_line_reads(kind, via, checks, advice):
    expression = Expression(via=via, text="m.inverse()")
    finding, remedy = reads("c = m.inverse()\n", {"expression": expression, "kind": kind})
    assert ("checks on the host" in finding.message) is checks
    assert ("Python number" in finding.message) is not checks
    assert advice in remedy.text


@pytest.mark.parametrize(("times", "patch"), [(1, True), (3, False)])
def test_a_log_that_runs_several_times_in_a_step_is_left_alone(times, patch):
    text = "for part in parts: print(part.item())\n"
    assert (reads(text, {"n": times})[1].edits != ()) is patch


def test_a_flag_that_one_line_sets():
    off = "torch.backends.cuda.matmul.allow_tf32 = False  # exact\n"
    assert proposed("AMP002", off, IN_FP32) == off.replace("False", "True")
    on = "from torch.backends import cudnn\ncudnn.benchmark = True\n"
    new = Autotuning(pattern=StepPattern(tuple(range(8)), 8), sizes=9, benchmark=True)
    assert proposed("CFG001", on, new) == on.replace("True", "False")


@pytest.mark.parametrize(
    "text",
    [
        "cudnn.benchmark = False\n",
        "cudnn.benchmark = args.fast\n",
        "cudnn.benchmark = True\ncudnn.benchmark = False\n",
        "benchmark = True\n",
        "other.my_cudnn.benchmark = True\n",
    ],
)
def test_no_flag_that_one_line_sets(text):
    assert Source({"t.py": text}).only_flag("cudnn.benchmark", value=True) is None


LOADER = """\
use_cuda = device == "cuda"
batches = DataLoader(data, shuffle=True, pin_memory=use_cuda)
def step():
    x = next(batches).to(device, non_blocking=use_cuda)
"""
"""As in nanochat: a ``torch.device`` is never equal to a string."""


@pytest.mark.parametrize(
    ("code", "what", "pinned", "keyword"),
    [
        ("DATA004", "batch", True, "non_blocking"),
        ("SYNC006", "tensor", True, "non_blocking"),
        ("DATA003", "batch", False, "pin_memory"),
    ],
)
def test_the_argument_that_is_named_is_the_one_that_was_given(code, what, pinned, keyword):
    facts = {"bytes": 1 << 20, "pinned": pinned, "loader": 0, "call": "to"}
    seen = copies((4, what, facts), loader=2)
    (finding,) = RULES[code]().detect(seen, Source({"t.py": LOADER}), Configs())
    said = f'{keyword}=use_cuda, which was False (set at t.py:1: `use_cuda = device == "cuda"`)'
    assert said in finding.message
    assert "without non_blocking" not in finding.message and "no non_b" not in finding.message
    remedy = RULES[code]().remedy(finding)
    assert remedy.edits == ()
    if code != "SYNC006":
        assert remedy.refused.startswith(f"`{keyword}` is decided by `use_cuda`, which is set at")
    assert "compare torch.device(device).type" in remedy.text
