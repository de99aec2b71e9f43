"""All rules on traces that nobody would write: none fails, no part exceeds its step."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from auditor.evidence.table import Evidence
from auditor.evidence.trace.facts import timeline_of
from auditor.judging import catalogue, engine
from auditor.recordings.standalone import TraceRecording
from tests.timeline.drawings import drawn
from tests.timeline.kineto import (
    call,
    frame,
    head_with_memory,
    loading,
    loop,
    memcpy,
    memory,
    memset,
    op,
    product,
    text,
    training,
    write,
)


def _body(number, start):
    first = 1000 * number
    return [
        loading(start, 300),
        *product(start + 310, first),
        op("aten::copy_", start + 400, 90),
        call("cudaMemcpyAsync", start + 405, 30, first + 1),
        memcpy("HtoD (Pageable -> Device)", start + 410, 60, first + 1, 1 << 20),
        *(
            call("cudaMemset", start + 500, 80, first + 2),
            memset("Pinned", start + 510, 60, first + 2),
        ),
        call("cudaMalloc", start + 600, 50),
        frame("train.py(3): main", start, 900),
        memory(start + 700, 512, 900),
    ]


EVENTS = [*training(3), *loop(12, 1000.0, _body)]
changes = st.lists(
    st.tuples(
        st.integers(0, len(EVENTS) - 1),
        st.sampled_from(["drop", "double", "move", "stretch"]),
        st.integers(-20_000, 20_000),
    ),
    max_size=60,
)


def changed(how):
    events = [dict(event) for event in EVENTS]
    for row, kind, by in how:
        event = events[row]
        if kind == "drop":
            event["ph"] = "M"  # metadata: no span any more
        elif kind == "double":
            events.append(dict(event))
        elif kind == "move":
            event["ts"] = max(0.0, event["ts"] + by)
        elif "dur" in event:
            event["dur"] = max(0.0, event["dur"] + by)
    return events


@given(changes)
def test_no_rule_fails_and_no_part_exceeds_its_step(how):
    with tempfile.TemporaryDirectory() as folder:
        recording = Evidence(
            TraceRecording(write(Path(folder), text(changed(how), head=head_with_memory(1000))))
        )
        judgement = engine.judge(recording, catalogue.rules())
        verdicts = judgement.verdicts
        drawn(timeline_of(recording))
        parts = timeline_of(recording).composition
    assert not [one.reason for one in verdicts if one.status == "failed"]
    for whole, part in (
        (parts.to_device, parts.to_device_alone),
        (parts.loader, parts.loader_alone),
    ):
        assert (part >= 0).all()
        assert (part <= whole).all()
    known = np.stack([parts.busy, parts.to_device, parts.loader, parts.unknown])
    assert (known <= parts.us).all()
    assert (parts.busy + parts.loader_alone + parts.unknown <= parts.us).all()
