"""A call that only shares its name with torch's is not patched."""

import pytest

from auditor.model import Edit, Site
from auditor.patch import another_librarys

SOURCES = {"train.py": "0", "src/mine/data.py": "1", "helpers.py": "2"}


def asked(source, call="DataLoader", action="set_keyword", keyword="pin_memory"):
    lines = source.splitlines()
    number = next(n for n, line in enumerate(lines, 1) if f"{call}(" in line)
    site = Site("train.py", number, "step", lines[number - 1].strip())
    edit = Edit(site, action, call, keyword, "True", reason="faster")
    return another_librarys([edit], lambda _: source.encode(), {"sources": SOURCES})


@pytest.mark.parametrize(
    "source",
    [
        "from torch.utils.data import DataLoader\nDataLoader(d)\n",
        "import torch.utils.data as data\ndata.DataLoader(d)\n",
        "import torch\ntorch.utils.data.DataLoader(d)\n",
        "from torch_geometric.loader import DataLoader\nDataLoader(d)\n",
        "from .data import DataLoader\nDataLoader(d)\n",
        "from mine.data import DataLoader\nDataLoader(d)\n",
        "import helpers\nhelpers.DataLoader(d)\n",
        "class DataLoader(Base): ...\nDataLoader(d)\n",
        "from lib import *\nDataLoader(d)\n",
        "import lib\nfrom torch.utils.data import DataLoader\nDataLoader(lib.d)\n",
        "from lib import DataLoader\nDataLoader(d, pin_memory=False)\n",
        "make()(d).DataLoader(e)\n",
    ],
)
def test_torchs_own_calls_and_the_programs_are_patched(source):
    assert asked(source) == ""


@pytest.mark.parametrize(
    "source",
    [
        "from lib import DataLoader\nDataLoader(d)\n",
        "import lib.loaders as loaders\nloaders.DataLoader(d)\n",
        "import lib\nlib.data.DataLoader(d)\n",
        "def step():\n    from lib import DataLoader\n    DataLoader(d)\n",
        "from lib import Loader as DataLoader\nDataLoader(d)\n",
        "from lib import DataLoader\nDataLoader(d, num_workers=2)\n",
        "try: import lib as data\nexcept: import torch.utils.data as data\ndata.DataLoader(d)\n",
    ],
)
def test_another_librarys_call_is_not(source):
    assert "of lib, which need not take" in asked(source)


def test_what_is_renamed_or_dropped_is_held_to_the_same():
    assert asked("import math\nmath.sqrt(x)\n", "sqrt", "rename_call", "")
    assert asked("import numpy as np\nnp.sqrt(x)\n", "sqrt", "rename_call", "")
    assert not asked("x.sqrt()\n", "sqrt", "rename_call", "")
    assert asked("import json\njson.dumps(d, cls=None)\n", "dumps", "drop_keyword", "cls")


def test_what_the_patcher_refuses_is_left_to_it():
    edit = Edit(Site("train.py", 1, "step", "x"), "set_keyword", "DataLoader", "pin_memory", "True")
    assert another_librarys([edit], lambda _: b"def (", {}) == ""
    assert another_librarys([edit], lambda _: None, {}) == ""
