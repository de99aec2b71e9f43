"""Which running sums may stay tensors: all uses of the sum are looked at."""

import pytest
from auditor.rules.reading import summed_read

from auditor.evidence.source.files import Source
from auditor.model import Site

LOOP = (
    "def train(loader):\n    total = 0.0\n    for i, x in enumerate(loader):\n        total += {}\n"
)

TAKEN = {
    "printed after the loop": LOOP.format("loss.item()") + "    print(f'{total / 5:.3f}')\n",
    "printed now and then, and begun again": LOOP.format("loss.item() * x.size(0)")
    + "        if i % 100 == 99:\n            print('loss %.3f' "
    "% (total / 100,))\n            total = 0.0\n",
    "counts hits": LOOP.format("(pred == y).sum().item()") + "    print(total)\n",
    "its mean has a name": LOOP.format("loss.item()")
    + "    mean = total / 5\n    writer.add_scalar('loss', mean, 1)\n",
    "read once": LOOP.format("loss.item()") + "    return float(total)\n",
    "its exponential is printed": LOOP.format("loss.item()")
    + "        if i % 10 == 0:\n            mean = total / 9\n    "
    "        print('{:.2f} {:.2f}'.format(mean, math.exp(mean)))\n",
    "printed by a counter of its own": LOOP.format("loss.item()")
    + "        if not i % every:\n            print(total)\n",
    "at the top of a script": "n = 0\nfor x in l:\n    n += 0\n    n += loss.item()\nprint(n)\n",
}

# fmt: off
LEFT = {
    "returned": LOOP.format("loss.item()") + "    return total / 5\n",
    "kept in a list": LOOP.format("loss.item()") + "    history.append(total)\n",
    "rounded": LOOP.format("loss.item()") + "    print(round(total, 2))\n",
    "formatted as an integer": LOOP.format("loss.item()") + "    print('%d right' % total)\n",
    "its mean is kept": LOOP.format("loss.item()") + "    mean = total / 5\n    history.append(mean)\n",
    "shown on every step": LOOP.format("loss.item()") + "        print(total)\n",
    "shown by a bar": LOOP.format("loss.item()") + "        bar.set_postfix(loss=total)\n",
    "compared on every step": LOOP.format("loss.item()") + "        if total > best:\n            best = 1\n",
    "shown on every step where somebody wants it": (
        LOOP.format("loss.item()") + "        if verbose:\n            print(f'{total:.3f}')\n"),
    "shown on every step of one rank": (
        LOOP.format("loss.item()") + "        if rank == 0:\n            print(f'{total:.3f}')\n"),
    "shown otherwise": (
        LOOP.format("loss.item()") + "        if i % 100 == 0:\n            pass\n        else:\n            print(total)\n"),
    "shown by a function of its own": (
        LOOP.replace("    for", "    def show():\n        print(total)\n\n    for").format("loss.item()") + "        show()\n"),
    "shown by a function of the loop": LOOP.format("loss.item()") + "        later(lambda: print(total))\n",
    "floored": LOOP.format("loss.item() // 2") + "    print(total)\n",
    "turned into something else first": LOOP.format("math.exp(loss.item())") + "    print(total)\n",
    "two reads": LOOP.format("a.item() + b.item()") + "    print(total)\n",
    "an attribute": "def f(self):\n    for x in l:\n        self.total += loss.item()\n\n\n",
    "shared with others": "def f():\n    global total\n    for x in l:\n        total += loss.item()\n",
    "no loop": "def f(total):\n    pass\n    pass\n    total += loss.item()\n    print(total)\n",
    "subtracted": LOOP.replace("+=", "-=").format("loss.item()") + "    print(total)\n",
}
# fmt: on


def read_of(text: str, *, within: bool = False):
    line = next(n for n, row in enumerate(text.split("\n"), 1) if ".item()" in row)
    span = summed_read(Source({"t.py": text}), Site("t.py", line), within=within)
    return span, text.split("\n")[line - 1]


@pytest.mark.parametrize("name", TAKEN)
def test_a_tensor_could_take_the_place(name):
    span, row = read_of(TAKEN[name])
    assert span is not None
    assert row[span.col : span.end_col].endswith(".item()")


@pytest.mark.parametrize("name", LEFT)
def test_a_tensor_could_not(name):
    assert read_of(LEFT[name])[0] is None


MICRO = """\
def train(loader):
    for i, batches in enumerate(loader):
        total = 0.0
        for x in batches:
            total += loss.item()
        {}print(total)
"""


@pytest.mark.parametrize(("seldom", "takes"), [("", False), ("if i % 10 == 0: ", True)])
def test_a_sum_of_micro_batches_is_read_once_in_each_step(seldom, takes):
    assert bool(read_of(MICRO.format(seldom), within=True)[0]) is takes
    assert read_of(MICRO.format(seldom))[0] is not None  # the outer loop's turns are epochs
