"""A program of this folder in a rehearsal: ``python rehearsed.py GPU PROGRAM ARGUMENTS...``
under a CPU build of torch, on a key of ``auditor.model.gpus``. What the program asks torch.cuda is answered by the simulated allocator.
"""

from __future__ import annotations

import runpy
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent))

from auditor.capture.instruments.user_frames import Frames  # noqa: E402
from auditor.capture.probes.base import Context  # noqa: E402
from auditor.capture.probes.rehearsal import RehearsalProbe  # noqa: E402
from auditor.model.devices import SHADOW  # noqa: E402
from auditor.recordings.folder import RecordingWriter  # noqa: E402


def main() -> None:
    gpu, name = sys.argv[1:3]
    program = HERE / name
    sys.argv = sys.argv[2:]
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordingWriter(Path(folder))
        frames = Frames(writer, (str(program),))
        probe = RehearsalProbe(Context(writer, frames, device=SHADOW, gpu=gpu))
        probe.install()
        try:
            runpy.run_path(str(program), run_name="__main__")
        finally:
            probe.uninstall()
            writer.close()


if __name__ == "__main__":
    main()
