"""Record every ``__cuda`` case of ``tests/rules`` on this machine's GPU and pack it: ``python -m
tests.gpu.record FOLDER``.
"""

import json
import sys
import tempfile
import traceback
from pathlib import Path

import torch

from auditor.evidence.table import Evidence
from auditor.judging import engine
from auditor.recordings.folder import write_manifest
from tests import recordings
from tests.inprocess import record
from tests.rules.test_rules import HERE, RULES, factories, load, roots


def main(out: Path) -> None:
    """Record, judge, say what was found."""
    assert torch.cuda.is_available(), "no CUDA device here"
    for code, rule in RULES.items():
        for kind in ("fires", "silent"):
            path = HERE / code.lower() / f"{kind}.py"
            for name in factories(path):
                if name.endswith("__cuda"):
                    one(code, rule, path, name, out)


def one(code: str, rule: type, path: Path, name: str, out: Path) -> None:
    """One case; an error is printed and the others go on."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            recording = record(
                Path(folder) / "r",
                getattr(load(path), name),
                engine.parts_of((rule,)),
                roots=roots(path),
            )
        except Exception:
            print(f"{code} {path.stem} {name}: FAILED\n{traceback.format_exc(limit=-4)}")
            return
        write_manifest(
            recording.folder, {**recording.manifest, "case": recordings.fingerprint(path, name)}
        )
        judgement = engine.judge(Evidence(recording), (rule,))
        said = [
            f"{f.severity.value} {f.site} {f.lost_us_per_step} {f.message}"
            for f in judgement.findings
        ]
        print(
            f"{code} {path.stem} {name}: {judgement.verdicts[0].status} "
            f"{judgement.verdicts[0].reason[-300:]} {json.dumps(said)}"
        )
        recordings.pack(recording.folder, out / recordings.path_of(code, path.stem, name).name)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
