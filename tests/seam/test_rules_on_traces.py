"""The rules that a trace answers, on real traces of many makers and years, against an independent ground truth where it is there."""

from __future__ import annotations

import pytest

from auditor import catalogue, engine
from auditor.bare_trace import TraceRecording
from auditor.model import Severity
from tests.recorded_traces import FOLDER, TRACES, TRUTH

RULES = tuple(rule for rule in catalogue.rules() if rule.family() in ("KERN", "AMP", "CFG", "DIST", "OPT"))

SAID_BY = {
    "gpu_idle_ge_30pct": ("KERN001",),
    "short_kernels": ("KERN003",),
    "fp32_simt_matmul_ge_10pct": ("AMP001", "AMP002"),
    "single_tensor_optimizer": ("OPT001",),
    "exposed_comm_ge_10pct": ("DIST003",),
    "cudnn_autotune_in_window": ("CFG001",),
}
"""Defects of the truth, and the rules that speak of them."""

SILENT_BECAUSE = {
    ("hta_gpu_user_annotation_gp100", "fp32_simt_matmul_ge_10pct"): "a GP100 has no tensor cores",
    ("kineto_resnet50_nw0_autogradapi_2021-01", "cudnn_autotune_in_window"): "only in the warm-up, before the first marked step",
    ("tracelens_mi300_normalization", "short_kernels"): "the device idles in gaps of seconds, not between launches",
    ("tracelens_mi300_resnet_act_checkpoint", "short_kernels"): "the queue was never empty: short kernels cost nothing",
}

pytestmark = pytest.mark.skipif(not TRACES, reason="no recorded traces beside this checkout")


@pytest.mark.parametrize("key", TRACES)
def test_what_is_visible_is_found_and_what_is_absent_is_not(key):
    judgement = engine.judge(TraceRecording(FOLDER / "data" / key), RULES)
    assert [verdict.reason for verdict in judgement.verdicts if verdict.status == "failed"] == []
    found = {finding.code for finding in judgement.findings}
    loud = {finding.code for finding in judgement.findings if finding.severity is not Severity.NOTE}
    for defect, codes in SAID_BY.items():
        verdict = TRUTH["files"][key]["defects"].get(defect)
        if verdict is None:
            continue
        if not verdict["present"]:
            assert not loud.intersection(codes), (defect, verdict["evidence"])
        elif (key.partition("/")[0], defect) not in SILENT_BECAUSE:
            assert found.intersection(codes), (defect, verdict["evidence"])


@pytest.mark.parametrize("key", TRACES)
def test_idle_time_is_claimed_once(key):
    """What rules on idle time would win back is never more than the device was idle."""
    recording = TraceRecording(FOLDER / "data" / key)
    prices = {f.code: f.lost_us_per_step or 0.0 for f in engine.judge(recording, RULES).findings}
    claimed = sum(prices.get(code, 0.0) for code in ("KERN001", "KERN002", "KERN003"))
    if claimed:
        from auditor.evidence.trace import timeline_of

        line = timeline_of(recording)
        assert claimed <= line.idle.total / 1e3 / line.steps.count + 1
