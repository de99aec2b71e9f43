"""Only ``auditor/cli/console.py`` writes to the terminal: it makes strangers' text harmless."""

import ast
from pathlib import Path

from tests.gathered import for_each, tree_of

ROOT = Path(__file__).resolve().parents[2]

ELSEWHERE = {
    "auditor/cli/console.py": "it is the way",
    "auditor/recordings/writer.py": "writes rows to the recording's own files, by their number",
    "auditor/cli/progress_display.py": "the bar, and what the user's own program writes",
    "auditor/extensions/tensorboard_tab/command.py": "redirects the streams of TensorBoard's child processes",
    "reports/terminal.py": "renders to a string by rich",
    "reports/schema.py": "a tool of the developers'",
    "auditor/recordings/schema/__main__.py": "a tool of the developers': prints a page of ours",
}
SOURCES = [
    path
    for room in ("auditor", "reports", "rules")
    for path in sorted((ROOT / room).rglob("*.py"))
    if "auditor/capture/" not in path.as_posix() and str(path.relative_to(ROOT)) not in ELSEWHERE
]


def writes(tree):
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        stream = any(
            name.startswith(f"sys.{each}.")
            for each in ("stdout", "stderr", "__stdout__", "__stderr__")
        )
        if name in ("print", "click.echo", "click.secho", "traceback.print_exc", "os.write") or (
            stream and "write" in name
        ):
            yield f"line {node.lineno}: {name}"


@for_each(SOURCES, lambda path: str(path.relative_to(ROOT)))
def test_nothing_else_writes_to_the_terminal(path):
    assert list(writes(tree_of(path))) == []


def test_the_search_finds_what_it_is_for():
    code = (
        "print(1)\nclick.echo(2)\nsys.stdout.write(3)\nsys.stderr.buffer.write(4)\n"
        "traceback.print_exc()"
    )
    assert len(list(writes(ast.parse(code)))) == 5
