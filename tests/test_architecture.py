"""Who may import whom (ARCHITECTURE.md), and that the light doors stay light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gathered import for_each, tree_of

ROOT = Path(__file__).resolve().parent.parent

HEAVY = {"torch", "pandas", "plotly", "numpy"}

ROW = re.compile(
    r"^\| `(?:auditor/extensions/|auditor/cli/|auditor/|rules/\*/)?(\w+)(?:/|\.py)` \|[^|]*\|([^|]*)\|$",
    re.MULTILINE,
)
MAY: dict[str, set[str]] = {
    package: set(re.findall(r"\w+", may)) - {"nothing"}
    for package, may in ROW.findall((ROOT / "ARCHITECTURE.md").read_text())
} | {"__main__": {"main"}, "__init__": set(), "extensions": set()}
"""Package or module of auditor/ -> what of ours it may import at module level, and which heavy
libraries; nothing else. As the tables of ARCHITECTURE.md have it, from the bottom up.
"""

EXTENSIONS = {
    each.name for each in (ROOT / "auditor" / "extensions").iterdir() if each.name[0] != "_"
}

DOORS = {"main", "more_commands", "run", "api"}
"""What starts an extension: it imports that inside a function, and is not imported by it."""

ALONE = {
    "auditor/capture/shadow": """auditor.allocator.ledger auditor.capture.shadow
        auditor.capture.instruments auditor.errors auditor.model.gpus""".split(),
    "auditor/capture/instruments": """auditor.capture.instruments auditor.errors auditor.machine
        auditor.model auditor.null_device auditor.recordings auditor.syntax""".split(),
}
"""Packages inside a package that know less than it. The ledger: keys of torch.cuda.memory_stats."""


def modules(node, path):
    """Names that an import statement imports; a name from our module counts as one, too."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    base = node.module or ""
    if node.level:
        package = path.relative_to(ROOT).with_suffix("").parts[: -node.level]
        above = () if package[0] == "auditor" else ("auditor",)
        base = ".".join([*above, *package, *filter(None, [node.module])])
    return {base} | {f"{base}.{alias.name}" for alias in node.names if base.startswith("auditor")}


def imports(path, functions=False):
    """Modules imported at module level, not for type checkers; with ``functions`` all."""
    found: set[str] = set()
    todo: list[ast.AST] = [tree_of(path)]
    while todo:
        for node in ast.iter_child_nodes(todo.pop()):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                found |= modules(node, path)
            elif not isinstance(node, ast.FunctionDef) or functions:
                if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
                    todo.append(node)
    return found - {"auditor", "__future__"}


def package_of(path):
    """The box of the table above that a file lies in."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] == "rules" and "probes" in parts[2:]:
        return "probes"
    return box(parts) if parts[0] == "auditor" else parts[0]


def box(parts):
    """Of what lies in auditor/: the own name of an extension or a door, else the room."""
    within = {"extensions": EXTENSIONS, "cli": DOORS}.get(parts[1], ())
    return parts[2] if parts[2:3] and parts[2] in within else parts[1]


def ours(found, own):
    """The boxes of the table above among imported modules, without a file's own."""
    named = {box(module.split(".")) for module in found if module.startswith("auditor.")}
    return named & set(MAY) - {own}


ROOMS = [ROOT / room for room in ("auditor", "rules", "reports")]
FILES = [path for room in ROOMS for path in sorted(room.rglob("*.py"))]
FREE = {"auditor/judging/build_report.py"}
"""Puts the report together and so sees nearly everything; no torch."""


def name_of(path):
    return str(path.relative_to(ROOT))


@for_each(FILES, name_of)
def test_imports_stay_inside_the_wall(path):
    allowed, found = MAY[package_of(path)], imports(path)
    assert not {module.partition(".")[0] for module in found} & HEAVY - allowed
    if name_of(path) not in FREE:
        assert not ours(found, package_of(path)) - allowed


@for_each([path for path in FILES if name_of(path).startswith(tuple(ALONE))], name_of)
def test_packages_inside_a_package_know_less_than_it(path):
    allowed = next(may for package, may in ALONE.items() if name_of(path).startswith(package))
    for module in imports(path):
        assert not module.startswith("auditor.") or module.startswith(tuple(allowed)), module


def test_no_package_imports_one_that_imports_it():
    """Also not by way of others, and not inside a function."""
    arrows: dict[str, set[str]] = {}
    for path in FILES:
        arrows.setdefault(package_of(path), set()).update(
            ours(imports(path, functions=True), package_of(path))
        )
    seen: set[str] = set()
    for package in MAY:
        circle = {other for other in arrows[package] if other in MAY} - seen
        reached = set(circle)
        while circle:
            circle = set().union(*(arrows[other] for other in circle)) - reached
            reached |= circle
        assert package not in reached, f"{package} is imported by what it imports"


CORE = [path for path in FILES if package_of(path) not in EXTENSIONS | DOORS]
"""Files that a reader of target, recording, findings and page needs."""


@for_each(CORE, name_of)
def test_the_core_imports_no_extension(path):
    """Also not inside a function."""
    assert not ours(imports(path, functions=True), package_of(path)) & EXTENSIONS


def test_the_page_names_every_package():
    assert {package_of(path) for path in FILES} <= MAY.keys()


@for_each([path for path in FILES if package_of(path) == "rules"], name_of)
def test_a_rule_reads_no_file_and_no_torch_even_inside_a_function(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
            )
            assert not HEAVY - {"numpy"} & {name.partition(".")[0] for name in names}, path
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "eval", "exec", "compile", "__import__"}, path


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["run", "--help"],
        ["checkpoint", "--help"],
        ["drill", "--help"],
        ["reproduce", "--help"],
        ["plan", "--help"],
        ["view", "--help"],
        ["compare", "--help"],
        ["verify", "--help"],
        ["explain", "SYNC001"],
        ["rules"],
        ["rules", "--json"],
        ["agents"],
        ["agents", "--skill"],
        ["mcp", "--help"],
    ],
    ids=" ".join,
)
def test_light_doors_import_nothing_heavy(command):
    probe = (
        "import sys; from auditor.cli.main import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        f"print('LOADED', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, *command],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stdout.rstrip().endswith("LOADED []"), done.stdout[-300:]


def test_judging_needs_no_torch():
    code = (
        "import auditor.judging.engine, auditor.judging.build_report, auditor.judging.catalogue as "
        "c, sys; c.rules(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_program_imports_torch_itself():
    """It may set variables before, which torch reads when it is imported."""
    code = "import auditor.capture.child, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "auditor", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert done.stdout.startswith("Usage: audit [OPTIONS] COMMAND")
