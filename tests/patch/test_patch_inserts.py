"""Calls put into a file, successors of torch.cuda.amp; what a stranger's report may not write."""

import ast

import pytest

from auditor.patch import Refused, apply_edits, diff_bytes
from tests.patch.marked import sides

UNSCALE = {"action": "insert_before", "value": "self.scaler.unscale_(opt)"}
HIGH = {"action": "insert_after_imports", "value": 'torch.set_float32_matmul_precision("high")'}
NEW = {"action": "modernize_amp", "call": "autocast"}
SCALER = {"action": "modernize_amp", "call": "GradScaler"}

# name: (what goes and what comes, line, edit)
# fmt: off
MADE = {
    "unscaled before clipping": (
        "def f():\n\tscale({+)\n\tself.scaler.unscale_(opt+})\n\tclip(\n\t\tm.parameters(), 1)\n", 4, UNSCALE),
    "unscaled inside an else": ("if a:\n    b()\nelse:\n    {+self.scaler.unscale_(opt)\n    +}clip(m)  # so\n", 4, UNSCALE),
    "behind the imports": (
        ('"""Doc."""\nimport os\nimport torch  # the one\n\nX = 1\nfrom torch import (\n    nn,\n)\n\n'
        '{+torch.set_float32_matmul_precision("high")\n\n+}def f():\n    import re\n'), 1, HIGH),
    "behind an import that ends the file": ('import torch.nn{+\n\ntorch.set_float32_matmul_precision("high")+}', 1, HIGH),
    "by its full name": ('import torch\nwith torch.[-cuda.-]amp.autocast({+"cuda", +}enabled=on):\n    a\n', 2, NEW),
    "imported by name": (
        'import torch\nfrom torch.cuda.amp import autocast, GradScaler\nwith x, {+torch.amp.+}autocast({+"cuda"+}):\n    a\n',
        3, NEW),
    "by its module": ('import torch\nfrom torch.cuda import amp\ns = {+torch.+}amp.GradScaler({+"cuda", +}2.0)\n', 3, SCALER),
    "on several lines": ('import torch\ns = torch.[-cuda.-]amp.GradScaler({+"cuda",+}\n    init_scale=2.0,\n)\n', 2, SCALER),
}
# fmt: on

TO, CUDA = {"action": "make_on_device", "call": "to"}, {"action": "make_on_device", "call": "cuda"}
# fmt: off
MADE |= {
    "made on the device": ("m = torch.zeros(2, 3[-).to(-]{+, device=+}self.device)[0]\n", 1, TO),
    "made on the GPU": ('f(torch.empty([-).-]{+device="+}cuda[-(non_blocking=True-]{+"+}))\n', 1, CUDA),
    "cut to a triangle": ("m = torch.tril(torch.ones(T, T{+, device=device+}))[-.to(device)-]\n", 1, TO),
    "made some lines above": ("x = torch.zeros(2, 3{+, device=device+})\nf()\ny = x.to(device)\n", 3, TO),
    "made some lines above, and shaped": (
        'for i in r:\n    x = torch.ones(2, 3{+, device="cuda"+}).view(6)\n    x = x.cuda()\n    g(x)\n', 3, CUDA),
    "cut, cast and shaped": ("m = torch.ones(T, T{+, device=device+}).triu(1).bool().view(1, T, T)[-.to(device)-]\n", 1, TO),
    "made over several lines": ("m = torch.full(\n    (2,),  # two\n    1.0,\n[-).to(\n-]    device=device{+,+}\n)\n", 1, TO),
}
# fmt: on

NO_GRAD = {"action": "decorate", "value": "torch.no_grad()"}
# fmt: off
MADE |= {
    "a function decorated": ("import torch{+\n@torch.no_grad()+}\ndef f(x):\n    return x\n", 2, NO_GRAD),
    "a method below its decorators": (
        "import torch\nclass T:\n    @staticmethod{+\n    @torch.no_grad()+}\n    def f(x):\n        return x\n", 4, NO_GRAD),
}
# fmt: on

FLAG = {"action": "set_constant", "keyword": "pin", "value": "True"}
# fmt: off
MADE |= {
    "a constant": ("pin = ([-False-]{+True+})  # no\n", 1, FLAG),
    "a field": ("class C:\n\tpin: bool = [-False-]{+True+}\n", 2, FLAG),
    "one of two on a line": ("a = 0; c.pin = [-False-]{+True+}\n", 1, FLAG),
}
# fmt: on

# fmt: off
REFUSED = {
    "moved to another tensor": ("m = torch.zeros(2).to(x)\n", 1, TO, "something else than a device"),
    "moved to a dtype": ("m = torch.zeros(2).to(torch.half)\n", 1, TO, "something else than a device"),
    "moved and cast": ("m = torch.zeros(2).to(device, torch.half)\n", 1, TO, "more than name a device"),
    "numpy's": ("m = np.zeros(2).to(device)\n", 1, TO, "not created by a function of torch"),
    "decorated already": ("import torch\n@torch.no_grad()\ndef f(x):\n    return x\n", 3, NO_GRAD, "there already"),
    "decorated without torch": ("def f(x):\n    return x\n", 1, NO_GRAD, "no `import torch`"),
    "decorated where no function is": ("import torch\n", 1, NO_GRAD, "begins no function"),
    "decorated with something else": (
        "import torch\ndef f(x):\n    return x\n", 2, NO_GRAD | {"value": "torch.compile()"}, "may be inserted"),
    "rounded on the way": ("m = torch.exp(torch.ones(2)).to(device)\n", 1, TO, "not created by a function of torch"),
    "a triangle of another tensor": ("m = torch.tril(x).to(device)\n", 1, TO, "not created by a function of torch"),
    "another tensor": ("m = x.to(device)\n", 1, TO, "not created by a function of torch"),
    "pinned on purpose": ("m = torch.zeros(2, pin_memory=True).to(device)\n", 1, TO, "another device may not support"),
    "a leaf of the graph": ("m = torch.zeros(2, requires_grad=True).to(device)\n", 1, TO, "another device may not support"),
    "keywords that are not seen": ("m = torch.zeros(2, **how).to(device)\n", 1, TO, "keywords"),
    "in parentheses": ("m = (torch.zeros(2)).to(device)\n", 1, TO, "more than a dot"),
    "a comment between": ("m = (torch.zeros(2)\n     # now\n     .to(device))\n", 3, TO, "more than a dot"),
    "not a number": ("pin = f()\n", 1, FLAG, "a number or flag"),
    "text": ("pin = '0'\n", 1, FLAG, "a number or flag"),
    "two names": ("pin, b = 0, 1\n", 1, FLAG, "a number or flag"),
    "code as the value": ("pin = 0\n", 1, FLAG | {"value": "f()"}, "not a whole number"),
    "unscaled already": ("self.scaler.unscale_(opt)\nclip(m)\n", 2, UNSCALE, "already called"),
    "no line of its own": ("a(); clip(m)\n", 1, UNSCALE, "not one plain statement"),
    "shares the line of its if": ("if a: clip(m)\n", 1, UNSCALE, "does not begin its line"),
    "a compound statement": ("if a:\n    b\n", 1, UNSCALE, "not one plain statement"),
    "no torch": ("import os\n", 1, HIGH, "no `import torch`"),
    "torch by another name": ("import torch as th\n", 1, HIGH, "no `import torch`"),
    "set already": ('import torch\ntorch.set_float32_matmul_precision("medium")\n', 1, HIGH, "already called"),
    "two statements on the import's line": ("import torch; a = 1\n", 1, HIGH, "shares its line"),
    "another call": ("import torch\n", 1, HIGH | {"value": "torch.load('x')"}, "may be inserted"),
    "another method": ("a\n", 1, UNSCALE | {"value": "os.system(x)"}, "may be inserted"),
    "a computed argument": ("a\n", 1, UNSCALE | {"value": "s.unscale_(f())"}, "not a plain call"),
    "two statements": ("a\n", 1, UNSCALE | {"value": "s.unscale_(f); b"}, "not an expression"),
    "the new class": ("import torch\nwith torch.amp.autocast('cuda'):\n    a\n", 2, NEW, "already"),
    "arguments in order": ("import torch\nwith torch.cuda.amp.autocast(on):\n    a\n", 2, NEW, "order has changed"),
    "no name torch": ("from torch.cuda.amp import autocast\nwith autocast():\n    a\n", 2, NEW, "no `import torch`"),
    "another function": ("import torch\nf()\n", 2, NEW | {"call": "f"}, "no successor"),
}
# fmt: on


def wish(edit, line, wanted):
    return edit(
        wanted["action"],
        line,
        **{name: value for name, value in wanted.items() if name != "action"},
    )


@pytest.mark.parametrize("name", MADE)
def test_made(name, edit, repository):
    text, line, wanted = MADE[name]
    before, after = sides(text)
    result = apply_edits(before.encode(), [wish(edit, line, wanted)])
    assert result.decode() == after
    ast.parse(result)
    repository.put("trainer.py", before.encode())
    repository.expect_applies(
        diff_bytes(before.encode(), result, "trainer.py"), {"trainer.py": result}
    )
    with pytest.raises(Refused):
        apply_edits(result, [wish(edit, line, wanted)])


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name, edit):
    before, line, wanted, why = REFUSED[name]
    with pytest.raises(Refused, match=why):
        apply_edits(before.encode(), [wish(edit, line, wanted)])
