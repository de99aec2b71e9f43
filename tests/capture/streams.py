"""A stream of operators of its own for some subscribers, without a recording."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import OperatorStream, Subscriber, subscribe
from auditor.model.devices import CPU
from auditor.recordings.folder import RecordingWriter
from tests.capture.drive import UserFrames


@contextlib.contextmanager
def watched_by(*subscribers: Subscriber) -> Iterator[OperatorStream]:
    """Show them, in this order, the operators that the block runs."""
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordingWriter(Path(folder))
        context = Context(writer, UserFrames(writer), device=CPU, in_step=True)
        leaves = [subscribe(context, each) for each in subscribers]
        try:
            assert context.stream is not None
            yield context.stream
        finally:
            for leave in reversed(leaves):
                leave()
            writer.close()
