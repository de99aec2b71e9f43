"""Which containers some line cuts."""

import pytest
from auditor.rules.mem.mem003_memory_grows import Bounds

from auditor.evidence.source.files import Source


def cut(text: str, name: str = "self.seen[*]", **how: bool) -> bool:
    return Bounds(Source({"trainer.py": text})).cut("trainer.py", name, **how)


@pytest.mark.parametrize(
    "text",
    [
        "def step(self):\n    self.seen.pop(0)",
        "def step(self):\n    del self.seen[:-8]",
        "def step(self):\n    self.seen = self.seen[-8:]",
        "def epoch(self):\n    self.seen = []",
        "def __init__(self):\n    self.seen = deque(maxlen=8)",
        "def __init__(self):\n    self.seen = [None] * 8",
        "def __init__(self):\n    self.seen = Ring(8)",
        "def step(self, i):\n    self.seen[i % 8] = 1",
        "def step(self):\n    self.seen[:] = self.seen[-8:]",
        "def step(self):\n    self.seen['loss'].clear()",
        "def main():\n    for epoch in range(3):\n        self.seen = []",
        "def step(self):\n    if len(self.seen) < 100:\n        self.seen.append(1)",
        "def step(self):\n    self.seen = torch.cat([self.seen, x])[-8:]",
        "def step(self):\n    self.seen = torch.cat([self.seen, x]).narrow(0, -8, 8)",
        "def step(self):\n    self.seen = (self.seen + [x])[-8:]",
        "self.seen, at = deque(maxlen=8), 0",
        "def step(self, key, x):\n    self.seen.setdefault(key, x)",
        "def fit():\n    self.seen = []\nfor epoch in range(3):\n    fit()",
        "def fit():\n    self.seen = []\nfit()\nfit()",
        "def fit():\n    self.seen = []\n[fit() for _ in range(3)]",
        "def fit():\n    self.seen = []\nfit()\non_epoch(fit)",
        "def fit():\n    self.seen = []\non_epoch(lambda: fit())",
        "def epoch():\n    fit()\ndef fit():\n    self.seen = []",
        "def fit():\n    self.seen = []\n    fit()",
        "def fit():\n    def epoch():\n        self.seen = []\nfit()",
    ],
)
def test_a_line_that_cuts(text):
    assert cut(text)


@pytest.mark.parametrize(
    "text",
    [
        "def __init__(self):\n    self.seen = []",
        "def __init__(self):\n    self.seen: list = list()",
        "def __init__(self):\n    self.seen = defaultdict(list)",
        "def __init__(self):\n    self.seen = deque()",
        "def step(self):\n    self.other.pop(0)\n    self.seen.append(1)",
        "seen = []",
        "self.seen, at = [], 0",
        "def fit():\n    self.seen = []\n    for epoch in range(3):\n        step()\nfit()",
        "def run():\n    fit()\ndef fit():\n    self.seen = []\nif True:\n    run()",
        "class A:\n    def fit(self):\n        self.seen = []\nA().fit()",
        "def step(self):\n    self.seen = torch.cat([self.seen, x]).detach()",
        "def step(self):\n    self.seen = self.seen + [x]",
        "def step(self):\n    if len(self.seen) % 8 == 0:\n        print(self.seen)",
    ],
)
def test_a_line_that_does_not(text):
    assert not cut(text)


def test_a_file_that_is_not_recorded_may_cut_it():
    assert Bounds(Source({})).cut("gone.py", "self.seen[*]")


def test_the_last_name_counts():
    text = "def step(self):\n    self.seen.history.clear()"
    assert cut(text, "self.seen.history[*][*]")
    assert not cut(text, "self.seen[*]")


def test_an_item_counts():
    assert cut("def step(self, key):\n    self.seen[key] = 1")
    assert cut("def step(self):\n    self.seen[:] = self.seen[-8:]")


def test_what_a_tensor_begins_with_is_no_limit():
    text = "def __init__(self):\n    self.seen = torch.zeros(8)"
    assert cut(text) and not cut(text, once=False)
    assert cut("def reset(self):\n    self.seen = torch.zeros(8)", once=False)


def test_an_attribute_may_be_cut_in_another_file():
    texts = {"trainer.py": "self.seen = []", "main.py": "def epoch():\n    trainer.seen.clear()"}
    assert Bounds(Source(texts)).cut("trainer.py", "self.seen[*]")
    assert not Bounds(Source(texts)).cut("trainer.py", "seen[*]")


def test_a_function_may_be_called_from_another_file():
    text, once = "def fit():\n    seen = []", "import trainer\ntrainer.fit()"
    assert not Bounds(Source({"trainer.py": text, "main.py": once})).cut("trainer.py", "seen[*]")
    often = "from trainer import fit\nfor epoch in range(3):\n    fit()"
    assert Bounds(Source({"trainer.py": text, "main.py": often})).cut("trainer.py", "seen[*]")
