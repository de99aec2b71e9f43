"""Who may import whom (ARCHITECTURE.md), and that the light doors stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

HEAVY = {"torch", "pandas", "plotly", "numpy"}

# room -> what it may import at module level: other rooms of ours, and heavy libraries. Nothing else of ours, nothing else heavy.
MAY = {
    "auditor/model.py": {"auditor.device_time", "auditor.pictures", "auditor.places", "auditor.prices", "auditor.verification"},
    "auditor/places.py": set(),
    "auditor/prices.py": set(),
    "auditor/merging.py": {"auditor.evidence.statements", "auditor.model", "auditor.rule"},
    "auditor/device_time.py": set(),
    "auditor/verification.py": set(),
    "auditor/pictures.py": {"auditor.errors"},
    "auditor/amounts.py": set(),
    "auditor/batch_means.py": set(),
    "auditor/errors.py": set(),
    "auditor/plan.py": set(),
    "auditor/rule.py": {"auditor.model"},
    "auditor/recording.py": {
        "auditor.model",
        "auditor.recording_joined",
        "auditor.recording_shapes",
        "auditor.recording_sources",
        "auditor.recording_writer",
        "auditor.redaction",
    },
    "auditor/recording_writer.py": {"auditor.errors", "auditor.recording_joined"},
    "auditor/recording_sources.py": {"auditor.redaction"},
    "auditor/redaction.py": set(),
    "auditor/console.py": {"auditor.catalogue", "auditor.errors"},
    "auditor/recording_shapes.py": {"auditor.model"},
    "auditor/target.py": {"auditor.errors", "auditor.target_forms"},
    "auditor/target_forms.py": {"auditor.errors"},
    "auditor/program.py": {"auditor.errors", "auditor.target"},
    "auditor/usage.py": {"auditor.errors"},
    "auditor/caveats.py": {"auditor.amounts", "auditor.engine", "auditor.evidence.training"},
    "auditor/recording_joined.py": set(),
    "auditor/timeline": {
        "numpy",
        "auditor.errors",
        "auditor.amounts",
        "auditor.heap",
        "auditor.model",
        "auditor.pictures",
        "auditor.timeline",
    },
    "auditor/config_files.py": {"auditor.redaction"},
    "auditor/heap.py": set(),
    "auditor/isolation.py": set(),
    "auditor/factories.py": set(),
    "auditor/logged.py": set(),
    "auditor/patch": {"auditor.config_files", "auditor.factories", "auditor.logged", "auditor.model", "auditor.patch"},
    "auditor/evidence": {
        "auditor.config_files",
        "auditor.factories",
        "auditor.logged",
        "auditor.allocator",
        "auditor.amounts",
        "auditor.batch_means",
        "auditor.device_time",
        "auditor.errors",
        "auditor.model",
        "auditor.pictures",
        "auditor.recording",
        "auditor.recording_sources",
        "auditor.rule",
        "auditor.evidence",
        "auditor.isolation",
    },
    "rules": {"auditor.amounts", "auditor.batch_means", "auditor.model", "auditor.rule", "auditor.evidence", "auditor.rules"},
    "reports": {
        "auditor.amounts",
        "auditor.device_time",
        "auditor.model",
        "auditor.pictures",
        "auditor.prices",
        "auditor.reports",
        "auditor.verification",
    },
    "auditor/engine.py": {
        "auditor.evidence.statements",
        "auditor.evidence.table",
        "auditor.merging",
        "auditor.model",
        "auditor.plan",
        "auditor.prices",
        "auditor.recording",
        "auditor.recording_sources",
        "auditor.recording_joined",
        "auditor.rule",
    },
    "auditor/explain.py": {"auditor.rule", "auditor.manual"},
    "auditor/manual.py": set(),
    "auditor/config.py": {"auditor.errors", "auditor.prices", "auditor.rule"},
    "auditor/catalogue.py": {"auditor.errors", "auditor.model", "auditor.rule"},
    "auditor/progress.py": {"auditor.plan"},
    "auditor/kin.py": set(),
    "auditor/sealing.py": {
        "auditor.config_files",
        "auditor.errors",
        "auditor.plan",
        "auditor.recording",
        "auditor.recording_sources",
        "auditor.redaction",
    },
    "auditor/runner.py": {
        "auditor.errors",
        "auditor.kin",
        "auditor.plan",
        "auditor.progress",
        "auditor.recording",
        "auditor.recording_sources",
        "auditor.redaction",
        "auditor.sealing",
        "auditor.workplace",
    },
    "auditor/bare.py": {"auditor.recording"},
    "auditor/bare_trace.py": {"auditor.bare"},
    "auditor/checkpoints": {
        "auditor.bare",
        "auditor.checkpoints",
        "auditor.errors",
        "auditor.evidence.unpickle",
        "auditor.isolation",
        "auditor.recording",
        "auditor.recording_sources",
    },
    "auditor/bare_snapshot.py": {"auditor.bare"},
    "auditor/further.py": {
        "auditor.errors",
        "auditor.plan",
        "auditor.processes",
        "auditor.progress",
        "auditor.recording",
        "auditor.recording_sources",
        "auditor.rerun",
        "auditor.runner",
        "auditor.workplace",
    },
    "auditor/rerun.py": {
        "auditor.errors",
        "auditor.plan",
        "auditor.progress",
        "auditor.recording",
        "auditor.recording_sources",
        "auditor.runner",
    },
    "auditor/verify": {
        "auditor.amounts",
        "auditor.batch_means",
        "auditor.redaction",
        "auditor.errors",
        "auditor.evidence.configs",
        "auditor.evidence.homes",
        "auditor.evidence.source",
        "auditor.evidence.steps",
        "auditor.model",
        "auditor.patch",
        "auditor.plan",
        "auditor.progress",
        "auditor.recording",
        "auditor.recording_sources",
        "auditor.runner",
        "auditor.verification",
        "auditor.verify",
        "auditor.workplace",
    },
    "auditor/processes.py": {
        "auditor.errors",
        "auditor.plan",
        "auditor.progress",
        "auditor.ranked",
        "auditor.recording",
        "auditor.recording_sources",
        "auditor.rerun",
        "auditor.runner",
        "auditor.workplace",
    },
    "auditor/ranked.py": {
        "auditor.errors",
        "auditor.evidence.steps",
        "auditor.model",
        "auditor.plan",
        "auditor.recording",
        "auditor.recording_sources",
        "auditor.runner",
        "auditor.timeline",
    },
    "auditor/allocator": {"auditor.model", "auditor.allocator"},
    "auditor/capture": {
        "torch",
        "auditor.allocator",
        "auditor.capture",
        "auditor.config_files",
        "auditor.errors",
        "auditor.plan",
        "auditor.program",
        "auditor.recording",
        "auditor.recording_writer",
        "auditor.recording_sources",
        "auditor.target",
    },
    "auditor/capture/shadow": {
        "torch",
        "triton",
        "auditor.capture.shadow",
        "auditor.capture.environment",
        "auditor.capture.patching",
        "auditor.errors",
    },
    "auditor/drill": {
        "auditor.drill",
        "auditor.errors",
        "auditor.plan",
        "auditor.progress",
        "auditor.recording",
        "auditor.recording_sources",
        "auditor.runner",
        "auditor.target",
        "auditor.workplace",
    },
    "auditor/tensorboard_tab": {
        "auditor.amounts",
        "auditor.catalogue",
        "auditor.errors",
        "auditor.model",
        "auditor.pictures",
        "auditor.tensorboard_tab",
    },
    "auditor/workplace.py": {"auditor.errors", "auditor.plan"},
    "auditor/__main__.py": {"auditor.cli"},
    "auditor/cli.py": {"auditor.doors", "auditor.quantities", "auditor.usage"},
    "auditor/doors.py": {"auditor.quantities", "auditor.usage"},
    "auditor/quantities.py": {"auditor.errors", "auditor.plan"},
}


def imports(path: Path) -> set[str]:
    """Modules imported at module level (what a function imports, it pays for itself), type-checking blocks left out."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        for inner in ast.walk(node) if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.If)) else ():
            if isinstance(inner, ast.Import):
                found.update(alias.name for alias in inner.names)
            elif isinstance(inner, ast.ImportFrom) and inner.module:
                found.update(
                    {inner.module} | {f"{inner.module}.{alias.name}" for alias in inner.names if inner.module == "auditor"}
                )
    return found - {"auditor", "__future__"}


def files(room: str) -> list[Path]:
    path = ROOT / room
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


CASES = [pytest.param(room, path, id=str(path.relative_to(ROOT))) for room in MAY for path in files(room)]


@pytest.mark.parametrize(("room", "path"), CASES)
def test_imports_stay_inside_the_wall(room: str, path: Path) -> None:
    allowed = MAY[room]
    for module in imports(path):
        top = module.partition(".")[0]
        if top in HEAVY:
            assert top in allowed, f"{path} imports {module}"
        if top == "auditor":
            assert any(module == ok or module.startswith(ok + ".") for ok in allowed), f"{path} imports {module}"


def test_the_wall_covers_every_file() -> None:
    covered = {path for room in MAY for path in files(room)}
    free = {"auditor/__init__.py", "auditor/assemble.py"}  # the facade and the assembler see everything but torch
    for path in [*(ROOT / "auditor").rglob("*.py"), *(ROOT / "rules").rglob("*.py"), *(ROOT / "reports").rglob("*.py")]:
        relative = str(path.relative_to(ROOT))
        assert path in covered or relative in free or relative.startswith("auditor/commands/"), relative


@pytest.mark.parametrize("path", sorted((ROOT / "rules").glob("*.py")), ids=lambda p: p.name)
def test_a_rule_reads_no_file_and_no_torch_even_inside_a_function(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            assert not HEAVY & {name.partition(".")[0] for name in names}, path
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "eval", "exec", "compile", "__import__"}, path


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["run", "--help"],
        ["checkpoint", "--help"],
        ["drill", "--help"],
        ["view", "--help"],
        ["compare", "--help"],
        ["verify", "--help"],
        ["explain", "SYNC001"],
        ["rules"],
        ["rules", "--json"],
    ],
    ids=" ".join,
)
def test_light_doors_import_nothing_heavy(command: list[str]) -> None:
    probe = (
        "import sys; from auditor.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        f"print('LOADED', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", probe, *command], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.rstrip().endswith("LOADED []"), done.stdout[-300:]


def test_judging_needs_no_torch() -> None:
    code = "import auditor.engine, auditor.assemble, auditor.catalogue as c, sys; c.rules(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "auditor", "--help"], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.startswith("Usage: audit [OPTIONS] COMMAND")
