"""``audit check``: what source alone proves is found, and all that it does not prove is not."""

import json
import subprocess
import sys
import textwrap

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from auditor.cli.main import main
from auditor.extensions.check.command import proofs
from tests.test_architecture import HEAVY

LOOP = """
import torch
from torch.cuda import empty_cache as flush
def train(loader, model, optimizer):
    for x, y in loader:
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        {line}
    {after}
"""


def found(source):
    return [(each.code, each.line) for each in proofs(textwrap.dedent(source))]


# fmt: off
PROVEN = {
    "a deprecated class": ("import torch\ns = torch.cuda.amp.GradScaler()", ("AMP005", 2)),
    "a deprecated class by its name": ("from torch.cuda.amp import autocast as cast\nwith cast():\n    pass", ("AMP005", 2)),
    "the module of it": ("from torch.cuda import amp\namp.autocast()", ("AMP005", 2)),
    "anomaly mode": ("import torch\ntorch.autograd.set_detect_anomaly(True)", ("NUM009", 2)),
    "anomaly mode by keyword": ("from torch import autograd as a\na.set_detect_anomaly(mode=True)", ("NUM009", 2)),
    "empty_cache": (LOOP.format(line="torch.cuda.empty_cache()", after="pass"), ("SYNC009", 9)),
    "empty_cache by another name": (LOOP.format(line="flush()", after="pass"), ("SYNC009", 9)),
    "compile": ("import torch\ndef f(m):\n    torch.compile(m)\n    m(1)", ("COMP004", 3)),
    "softmax": ("import torch.nn.functional as F\nF.cross_entropy(F.softmax(x, -1), y)", ("TRAIN002", 2)),
    "softmax by keyword": (
        "from torch.nn.functional import cross_entropy as ce, softmax\nce(\ninput=softmax(x, 1), target=y)", ("TRAIN002", 2)),
    "sigmoid": ("import torch\nfrom torch import nn\nnn.BCEWithLogitsLoss()(torch.sigmoid(x), y)", ("TRAIN002", 3)),
    "probabilities": ("import torch\ntorch.nn.functional.nll_loss(torch.softmax(x, 1), y)", ("TRAIN002", 2)),
}
# fmt: on

# fmt: off
SILENT = {
    "the class of today": "import torch\ntorch.amp.GradScaler('cuda')",
    "a class of another's": "from apex.amp import autocast\nautocast()",
    "a module of their own": "from .cuda.amp import autocast\nautocast()",
    "a name that is given another value": "from torch.cuda.amp import autocast\nautocast = nullcontext\nautocast()",
    "a parameter of that name": "import torch\ndef f(torch):\n    torch.compile(1)",
    "two imports of one name": (
        "try:\n    from torch.amp import autocast\nexcept ImportError:\n    from torch.cuda.amp import autocast\nautocast()"),
    "anomaly mode off": "import torch\ntorch.autograd.set_detect_anomaly(False)",
    "anomaly mode by an option": "import torch\ntorch.autograd.set_detect_anomaly(args.debug)",
    "anomaly mode where asked for": "import torch\nif DEBUG:\n    torch.autograd.set_detect_anomaly(True)",
    "anomaly mode in a function": "import torch\ndef debug():\n    torch.autograd.set_detect_anomaly(True)",
    "anomaly mode on and off": (
        "import torch\ntorch.autograd.set_detect_anomaly(True)\nf()\ntorch.autograd.set_detect_anomaly(False)"),
    "empty_cache after the loop": LOOP.format(line="pass", after="torch.cuda.empty_cache()"),
    "empty_cache now and then": LOOP.format(line="if step % 100 == 0: torch.cuda.empty_cache()", after="pass"),
    "empty_cache after an error": (
        LOOP.format(line="try:\n            f()\n        except torch.OutOfMemoryError:\n            torch.cuda.empty_cache()", after="pass")),
    "empty_cache in an epoch": (
        "import torch\nfor epoch in range(3):\n    for x in loader:\n        m(x).backward()\n        o.step()\n"
        "    torch.cuda.empty_cache()"),
    "empty_cache in an evaluation": "import torch\nfor x in loader:\n    m(x)\n    torch.cuda.empty_cache()",
    "compile that is taken": "import torch\nm = torch.compile(m)",
    "compile in place": "import torch\nm.compile()",
    "compile as a decorator": "import torch\n@torch.compile\ndef f(x): return x",
    "logits": "import torch.nn.functional as F\nF.cross_entropy(model(x), y)",
    "softmax of the target": "import torch.nn.functional as F\nF.cross_entropy(x, F.softmax(t, -1))",
    "log_softmax": "import torch.nn.functional as F\nF.nll_loss(F.log_softmax(x, -1), y)",
    "a softmax of their own": "import torch.nn.functional as F\nF.cross_entropy(softmax(x), y)",
    "part of a sum": "import torch.nn.functional as F\nF.cross_entropy(2 * F.softmax(x, 1), y)",
    "a loss of their own": "import torch\ncross_entropy(torch.softmax(x, 1), y)",
}
# fmt: on


@pytest.mark.parametrize("name", PROVEN)
def test_what_is_proven_is_found(name):
    source, wanted = PROVEN[name]
    assert found(source) == [wanted]


@pytest.mark.parametrize("name", SILENT)
def test_what_is_not_proven_is_not_found(name):
    assert found(SILENT[name]) == []


@given(st.text(max_size=200))
def test_any_text_is_looked_at_or_refused(text):
    try:
        proofs(text)
    except (SyntaxError, ValueError):
        pass


def check(*words):
    return CliRunner().invoke(main, ["check", *words], prog_name="audit")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(PROVEN["anomaly mode"][0] + "\n" + "torch.compile(m)\n")
    return path


def test_rules_are_chosen_and_lines_silenced(file):
    assert "NUM009" not in check(str(file), "--select", "COMP").stdout
    assert "COMP004" not in check(str(file), "--ignore", "comp004").stdout
    file.write_text(file.read_text().replace("(m)", "(m)  # audit: ignore[COMP004]"))
    assert "COMP004" not in check(str(file)).stdout


def test_a_folder_is_all_of_its_python(file, tmp_path):
    (tmp_path / "data.txt").write_text("torch.compile(m)")
    (tmp_path / "broken.py").write_text("def f(:")
    done = check(str(tmp_path))
    assert done.exit_code == 2 and len(done.stdout.splitlines()) == 2
    assert "broken.py is not Python, line 1" in done.stderr
    assert "2 findings in 1 file" in done.stderr
    assert check(str(tmp_path), "--fail-on", "warning").exit_code == 1


@pytest.mark.parametrize("text", ["def f(:", "x = 1\x00", "print 'two'"])
def test_a_file_that_is_no_python_is_no_clean_file(tmp_path, text):
    (tmp_path / "old.py").write_text(text)
    done = check(str(tmp_path / "old.py"))
    assert done.exit_code == 2 and "0 findings in 0 files" in done.stderr


def test_a_file_named_by_hand_is_looked_at_whatever_its_name(file, tmp_path):
    script = tmp_path / "train"
    script.write_text(file.read_text())
    assert len(check(str(script)).stdout.splitlines()) == 2
    notebook = tmp_path / "train.ipynb"
    notebook.write_text("{}")
    done = check(str(notebook))
    assert done.exit_code == 2 and "nbconvert" in done.output


def test_a_file_that_is_not_there_is_one_sentence(tmp_path):
    done = check(str(tmp_path / "none.py"))
    assert done.exit_code == 2 and "there is no file" in done.output


def test_sarif_has_rules_and_places(file):
    done = check(str(file), "--format", "sarif")
    (run,) = json.loads(done.stdout)["runs"]
    assert {each["id"] for each in run["tool"]["driver"]["rules"]} == {"NUM009", "COMP004"}
    regions = [each["locations"][0]["physicalLocation"]["region"] for each in run["results"]]
    assert sorted(each["startLine"] for each in regions) == [2, 3]


def test_it_imports_nothing_heavy(file):
    program = (
        "import sys\nfrom auditor.cli.main import main\n"
        f"try:\n    main(['check', {str(file)!r}])\nexcept SystemExit:\n    pass\n"
        f"print(sorted(set({sorted(HEAVY)!r}) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
