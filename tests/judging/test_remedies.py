"""Remedies that need the source: the patch that a rule proposes, made on a file as users write it,
or no patch.
"""

from dataclasses import replace

import pytest
from auditor.rules.amp.precision import FP32, Precision, unscale_call
from auditor.rules.cfg.autotuning import Autotuning
from auditor.rules.reading import patch_of

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
from tests.rules.asking import copied, happened, place, read

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
ONE_BY_ONE = OptimizerCalls(
    names=("AdamW",), calls=5, steps=5, marked=True, launches_per_call=500, host_share=0.3
)


def patched(code: str, finding: Finding, text: str) -> str | None:
    """The text as the rule's patch leaves it; None where there is no patch."""
    remedy = RULES[code]().remedy(finding)
    if not remedy.edits:
        return None
    planned = plan(remedy.edits, lambda file: text.encode())
    assert not planned.refused
    assert not remedy.safe or code in ("AMP005", "DATA003", "SYNC010")
    return planned.files[0].after.decode()


def test_the_fused_optimizer():
    (finding,) = RULES["OPT003"]().detect(FOREACH, Source({"t.py": TRAINER}), Configs())
    assert patched("OPT003", finding, TRAINER) == TRAINER.replace(
        "lr=1e-3)", "lr=1e-3, fused=True)"
    )


@pytest.mark.parametrize(
    "text",
    [
        TRAINER.replace("lr=1e-3", "foreach=True"),  # torch refuses both
        TRAINER + "other = torch.optim.AdamW(p)\n",  # which one it is cannot be told
        TRAINER.replace("AdamW", "Mine"),
    ],
)
def test_no_fused_optimizer_where_the_source_is_not_clear(text):
    (finding,) = RULES["OPT003"]().detect(FOREACH, Source({"t.py": text}), Configs())
    assert patched("OPT003", finding, text) is None


def test_foreach_where_it_was_switched_off():
    off, on = (
        TRAINER.replace("lr=1e-3", "foreach=False"),
        TRAINER.replace("lr=1e-3", "foreach=True"),
    )
    (finding,) = RULES["OPT001"]().in_trace(ONE_BY_ONE, Source({"t.py": off}), Configs())
    assert patched("OPT001", finding, off) == on
    (finding,) = RULES["OPT001"]().in_trace(ONE_BY_ONE, Source({"t.py": TRAINER}), Configs())
    assert patched("OPT001", finding, TRAINER) is None


IN_FP32 = Precision(
    capability=8, marked=True, busy=1.0, kernel_us=100.0, matmul_us=((FP32, 100.0),)
)


def test_tf32_behind_the_imports():
    (found,) = RULES["AMP002"]().detect(IN_FP32, Source({"t.py": TRAINER}))
    wanted = 'import GradScaler\n\ntorch.set_float32_matmul_precision("high")\n'
    assert patched("AMP002", found, TRAINER) == TRAINER.replace("import GradScaler\n", wanted)


def test_gradients_are_unscaled_before_they_are_clipped():
    amp = Amp(12, tuple(happened("clip_scaled", CLIP, step) for step in range(12)))
    (finding,) = RULES["AMP006"]().detect(amp, Source({"t.py": TRAINER}))
    wanted = TRAINER.replace("    clip_grad", "    scaler.unscale_(optimizer)\n    clip_grad")
    assert patched("AMP006", finding, TRAINER) == wanted


@pytest.mark.parametrize(
    "text",
    [
        TRAINER.replace("scaler.update()", "scaler.unscale_(optimizer)"),
        TRAINER.replace("scaler.update()", "scaler.step(other)"),
        TRAINER.replace("scaler.scale(", "other.scale("),
        TRAINER.replace("scaler.step(optimizer)", "scaler.step(make())"),
        TRAINER.replace("scaler.step(optimizer)", "finish()"),
        "not python (",
    ],
)
def test_no_unscale_where_the_scaler_is_not_clear(text):
    assert unscale_call(Source({"t.py": text}), CLIP) == ""


def test_the_deprecated_classes():
    amp = Amp(12, (happened("old_scaler", CLIP, 3),))
    (finding,) = RULES["AMP005"]().detect(amp, Source({"t.py": TRAINER}))
    assert finding.site.line == 5
    assert patched("AMP005", finding, TRAINER) == TRAINER.replace(
        "= GradScaler()", '= torch.amp.GradScaler("cuda")'
    )


@pytest.mark.parametrize(("makes", "safe"), [("zeros", True), ("randn", False)])
def test_a_tensor_is_made_on_the_device(makes, safe):
    text = f"noise = torch.{makes}(8).to(device)\n"
    site = Site("t.py", 1, "", text.strip())
    copies = tuple(
        copied(site, "made on the host", step, bytes=32, call="to") for step in range(12)
    )
    seen = Copies(device="rehearsal", copies=copies, steps=12)
    (finding,) = RULES["SYNC010"]().detect(seen, Source({"t.py": text}))
    assert patched("SYNC010", finding, text) == f"noise = torch.{makes}(8, device=device)\n"
    assert RULES["SYNC010"]().remedy(finding).safe is safe


def test_a_mask_is_cut_on_the_device():
    text = "mask = torch.tril(torch.ones(8, 8)).to(device)\n"
    copies = tuple(
        copied(Site("t.py", 1, "", text.strip()), "made on the host", step, call="to")
        for step in range(12)
    )
    seen = Copies(device="rehearsal", copies=copies, steps=12)
    (finding,) = RULES["SYNC010"]().detect(seen, Source({"t.py": text}))
    wanted = "mask = torch.tril(torch.ones(8, 8, device=device))\n"
    assert patched("SYNC010", finding, text) == wanted
    assert RULES["SYNC010"]().remedy(finding).safe


APART = """\
batches = DataLoader(data, shuffle=True)
def train():
    for images, labels in batches:
        images = images.reshape(-1, 8).to(device)
        labels = labels.to(device)
"""


def test_all_lines_that_move_a_loaders_batch_stop_to_wait_when_it_is_pinned():
    texts = APART.splitlines()
    copies = tuple(
        copied(
            Site("t.py", line, "", texts[line - 1].strip()),
            "batch",
            step,
            bytes=size,
            loader=0,
            call="to",
        )
        for line, size in ((4, 313_600), (5, 800))
        for step in range(12)
    )
    seen = Copies("rehearsal", 12, copies, {0: Loader(0, made_at=Site("t.py", 1))})
    (finding,) = RULES["DATA003"]().detect(seen, Source({"t.py": APART}), Configs())
    assert (
        "307 KiB of batches are copied to the device at t.py:4 and 1 more line on"
        in finding.message
    )
    assert (finding.per_step, finding.severity) == (2, None)
    wanted = APART.replace("True", "True, pin_memory=True").replace(
        "(device)", "(device, non_blocking=True)"
    )
    assert patched("DATA003", finding, APART) == wanted


def pinned_loader(*lines: str, calls: tuple[str, ...]):
    """What DATA003 does to a loop over a loader whose batches these lines copy, by these calls."""
    text = "batches = DataLoader(data, shuffle=True)\nfor images in batches:\n" + "".join(
        f"    {line}\n" for line in lines
    )
    copies = tuple(
        copied(Site("t.py", 3 + at, "", lines[at]), "batch", step, bytes=9**6, loader=0, call=call)
        for at, call in enumerate(calls)
        for step in range(12)
    )
    seen = Copies("rehearsal", 12, copies, {0: Loader(0, made_at=Site("t.py", 1))})
    (finding,) = RULES["DATA003"]().detect(seen, Source({"t.py": text}), Configs())
    return text, patched("DATA003", finding, text), RULES["DATA003"]().remedy(finding).text


def test_a_batch_that_is_moved_by_its_type_stops_to_wait_too():
    text, after, _ = pinned_loader("real = images.type(Tensor)", calls=("type",))
    assert after == text.replace("shuffle=True", "shuffle=True, pin_memory=True").replace(
        "(Tensor)", "(Tensor, non_blocking=True)"
    )


@pytest.mark.parametrize(
    ("lines", "calls"),
    [
        (["buffer[:] = images"], ("",)),
        (["x = images.to(device)", "buffer[:] = images"], ("to", "")),
        (["x = images.to(device, non_blocking=wanted())"], ("to",)),
    ],
)
def test_memory_is_not_pinned_for_a_copy_that_waits_all_the_same(lines, calls):
    _, after, advice = pinned_loader(*lines, calls=calls)
    assert after is None
    assert f"the copy at t.py:{2 + len(calls)} still waits" in advice


def test_nothing_is_made_on_the_device_where_something_else_moves():
    source = Source(
        {
            "t.py": "a = make(8).to(device)\nb = x.to(device)\nc = "
            "torch.ones(2).to(device).to(half)\n"
        }
    )
    assert [source.makes_at(Site("t.py", line)) for line in (1, 2, 3, 4)] == ["", "", "", ""]


@pytest.mark.parametrize(
    ("more", "said", "advice"),
    [
        (
            {"index": True},
            "an index of the host's",
            "a tensor on the device before its first use",
        ),
        (
            {},
            "pageable memory, no non_blocking=True",
            "Keep the tensor on the device",
        ),
    ],
)
def test_an_index_of_the_hosts_has_advice_of_its_own(more, said, advice):
    facts = {"bytes": 1024, **more}
    copies = tuple(copied(Site("t.py", 1), step=step, **facts) for step in range(12))
    (finding,) = RULES["SYNC006"]().detect(Copies("rehearsal", 12, copies), Source(), Configs())
    assert said in finding.message
    assert advice in RULES["SYNC006"]().remedy(finding).text


@pytest.mark.parametrize(
    ("line", "call", "said", "advice"),
    [
        (
            'x = x.to(device, non_blocking=device == "cuda")',
            "to",
            "non_blocking=device == 'cuda', which was False",
            "compare torch.device(device).type",
        ),
        ("x = x.to(device, non_blocking=False)", "to", "non_blocking=False)", ""),
        ("kept.copy_(x, non_blocking=False)", "copy_", "non_blocking=False)", ""),
        ("kept.copy_(x, fast)", "copy_", "non_blocking=fast, which was False", ""),
        ("kept.copy_(x)", "copy_", "no non_blocking=True)", ""),
        ("x = x.to(device)", "to", "no non_blocking=True)", ""),
    ],
)
def test_a_written_non_blocking_is_never_called_missing(line, call, said, advice):
    copies = tuple(
        copied(Site("t.py", 1), "tensor", step, bytes=1024, call=call) for step in range(12)
    )
    source = Source({"t.py": line + "\n"})
    (finding,) = RULES["SYNC006"]().detect(Copies("rehearsal", 12, copies), source, Configs())
    assert said in finding.message
    assert advice in RULES["SYNC006"]().remedy(finding).text


@pytest.mark.parametrize(
    ("written", "said", "advice"),
    [
        (True, "Python numbers (16 B) are sent", "torch.full"),
        (False, "numbers (16 B) made on the host are sent", "are new on each step"),
    ],
)
def test_numbers_whose_origin_does_not_show_are_not_called_pythons(written, said, advice):
    copies = tuple(
        copied(Site("t.py", 1), "constant", step, bytes=16, written=written) for step in range(12)
    )
    (finding,) = RULES["SYNC011"]().detect(Copies("rehearsal", 12, copies))
    assert said in finding.message
    assert advice in RULES["SYNC011"]().remedy(finding).text


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
        ("", "loss.detach()"),
    ],
)
def test_what_to_do_about_a_read_depends_on_who_reads(via, advice):
    expression = Expression(via=via, text="Normal(mean, std)")
    rows = tuple(read(Site("t.py", 1), step, expression=expression) for step in range(12))
    (finding,) = RULES["SYNC001"]().detect(
        Reads("rehearsal", 12, rows), Source({"t.py": "d = Normal(mean, std)\n"})
    )
    assert advice in RULES["SYNC001"]().remedy(finding).text


def test_functions_of_a_framework_are_counted_one_by_one():
    functions = {"lib/a.py:log": 1, "lib/b.py:check": 3}
    rows = tuple(
        read(Site("t.py", 1), step, expression=Expression(via=via), n=n)
        for step in range(12)
        for via, n in functions.items()
    )
    (finding,) = RULES["SYNC001"]().detect(
        Reads("rehearsal", 12, rows), Source({"t.py": "train()\n"})
    )
    assert "(inside lib/b.py:check 3 per step, lib/a.py:log 1 per step)" in finding.message


@pytest.mark.parametrize(
    ("kind", "via", "checks", "advice"),
    [
        ("check", "", True, "inv_ex"),
        ("item", "", False, "loss.detach()"),
        ("check", "torch/distributions/lowrank.py:rsample", True, "not yours to edit"),
    ],
)
def test_a_check_of_linalg_is_no_number_that_the_line_reads(kind, via, checks, advice):
    expression = Expression(via=via, text="m.inverse()")
    rows = tuple(
        read(Site("t.py", 1), step, expression=expression, kind=kind) for step in range(12)
    )
    (finding,) = RULES["SYNC001"]().detect(
        Reads("rehearsal", 12, rows), Source({"t.py": "c = m.inverse()\n"})
    )
    assert ("checks on the host" in finding.message) is checks
    assert ("Python number" in finding.message) is not checks
    assert advice in RULES["SYNC001"]().remedy(finding).text


@pytest.mark.parametrize(("times", "patch"), [(1, True), (3, False)])
def test_a_log_that_runs_several_times_in_a_step_is_left_alone(times, patch):
    text = "for part in parts:\n    print(part.item())\n"
    site = Site("t.py", 2, "", "print(part.item())")
    rows = tuple(read(site, step, n=times) for step in range(12))
    (finding,) = RULES["SYNC001"]().detect(Reads("rehearsal", 12, rows), Source({"t.py": text}))
    assert (RULES["SYNC001"]().remedy(finding).edits != ()) is patch


def test_a_flag_that_one_line_sets():
    off = "torch.backends.cuda.matmul.allow_tf32 = False  # exact\n"
    (found,) = RULES["AMP002"]().detect(IN_FP32, Source({"t.py": off}))
    assert patched("AMP002", found, off) == off.replace("False", "True")
    on = "from torch.backends import cudnn\ncudnn.benchmark = True\n"
    new = Autotuning(pattern=StepPattern(tuple(range(8)), 8), sizes=9, benchmark=True)
    (found,) = RULES["CFG001"]().detect(new, Source({"t.py": on}))
    assert patched("CFG001", found, on) == on.replace("True", "False")


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


def test_the_argument_that_is_named_is_the_one_that_was_given():
    facts = {"bytes": 1 << 20, "pinned": True, "loader": 0, "call": "to"}
    copies = tuple(copied(Site("t.py", 4), "batch", step, **facts) for step in range(12))
    sources = Source({"t.py": LOADER}), Configs()
    said = 'which was False (set at t.py:1: `use_cuda = device == "cuda"`)'
    (finding,) = RULES["DATA004"]().detect(Copies("rehearsal", 12, copies), *sources)
    assert finding.message.endswith(f"with non_blocking=use_cuda, {said}")
    assert "without non_blocking" not in finding.message
    remedy = RULES["DATA004"]().remedy(finding)
    assert remedy.edits == () and remedy.refused.startswith(
        "`non_blocking` is decided by `use_cuda`, which is set at t.py:1"
    )
    assert "compare torch.device(device).type" in remedy.text

    (finding,) = RULES["SYNC006"]().detect(
        Copies("rehearsal", 12, tuple(replace(c, what="tensor") for c in copies)), *sources
    )
    assert (
        f"non_blocking=use_cuda, {said}" in finding.message
        and "no non_blocking" not in finding.message
    )

    facts["pinned"] = False
    pageable = tuple(copied(Site("t.py", 4), "batch", step, **facts) for step in range(12))
    seen = Copies("rehearsal", 12, pageable, {0: Loader(0, made_at=Site("t.py", 2))})
    (finding,) = RULES["DATA003"]().detect(seen, *sources)
    assert f"from unpinned memory: pin_memory=use_cuda, {said}" in finding.message
    remedy = RULES["DATA003"]().remedy(finding)
    assert remedy.edits == () and remedy.refused.startswith("`pin_memory` is decided by `use_cuda`")


def test_a_constant_that_decides_is_changed_where_it_stands():
    text = LOADER.replace('device == "cuda"', "False")
    facts = {"bytes": 1 << 20, "loader": 0, "call": "to"}
    seen = Copies(
        "rehearsal",
        12,
        tuple(copied(Site("t.py", 4), "batch", step, **facts) for step in range(12)),
        {0: Loader(0, made_at=Site("t.py", 2))},
    )
    (finding,) = RULES["DATA003"]().detect(seen, Source({"t.py": text}), Configs())
    remedy = RULES["DATA003"]().remedy(finding)
    planned = plan(remedy.edits, lambda file: text.encode())
    assert not planned.refused and not remedy.safe  # what else reads the name changes with it
    assert planned.files[0].after.decode() == text.replace("use_cuda = False", "use_cuda = True")


def test_the_optimizers_own_switches_are_named():
    text = "lists = mode > 1\n" + TRAINER.replace("lr=1e-3", "foreach=lists")
    (finding,) = RULES["OPT001"]().in_trace(ONE_BY_ONE, Source({"t.py": text}), Configs())
    remedy = RULES["OPT001"]().remedy(finding)
    assert (
        remedy.edits == ()
        and "`foreach` is decided by `lists`, which is set at t.py:1" in remedy.refused
    )
    text = "fast = False\n" + TRAINER.replace("lr=1e-3", "fused=fast")
    (finding,) = RULES["OPT003"]().detect(FOREACH, Source({"t.py": text}), Configs())
    assert patched("OPT003", finding, text) == text.replace("fast = False", "fast = True")


@pytest.mark.parametrize(
    ("line", "safe"),
    [
        ("sys.stdout.write(str(loss.item()))", True),
        ("print(loss.item())", True),
        ("f.write(str(loss.item()))", False),
        ("print(loss.item(), file=f)", False),
        ("rows.writerow([i, loss.item()])", False),
    ],
)
def test_a_log_into_a_file_is_shown_but_not_called_safe(line, safe):
    text = f"for i, batch in enumerate(loader):\n    optimizer.step()\n    {line}\n"
    site = Site("t.py", 3, "", line)
    edit = patch_of(Source({"t.py": text}), place(read(site), of=1))
    assert edit.safe is safe
    assert ("something may read it" in edit.reason) is not safe
    planned = plan((edit,), lambda file: text.encode())
    assert planned.files[0].after.decode() == text.replace(
        f"    {line}", f"    if i % 50 == 0:\n        {line}"
    )
