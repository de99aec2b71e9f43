"""A program that compiles nothing does not wait for the compiler's import where nobody times it."""

import contextlib
import io
import subprocess
import sys
import textwrap
from types import ModuleType

from auditor.capture.instruments.torch_private import late_compiler

STEPS = """
    import sys
    {before}
    import torch
    from auditor.capture.instruments.torch_private.late_compiler import is_put_off
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.fill_(0.5)
        model.bias.fill_(0.25)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    graded = torch.optim.SGD([torch.ones(1, requires_grad=True).clone()], lr=0.1, differentiable=True)
    graded.param_groups[0]["params"][0].grad = torch.ones(1)

    def step(inputs=torch.arange(3.0)):
        optimizer.zero_grad()
        model(inputs).square().sum().backward()
        optimizer.step()

    step()
    graded.step()
    early = "torch._dynamo" in sys.modules
    compiled = torch.compile(model, backend="eager")
    step()
    print(is_put_off(), early, "torch._dynamo" in sys.modules, torch.is_grad_enabled())
    print(compiled(torch.arange(3.0)).tolist(), model.weight.tolist())
    print(graded.param_groups[0]["params"][0].requires_grad)
"""
PUT_OFF = """
    from auditor.capture.instruments.torch_private import late_compiler
    late_compiler.put_off()
"""


def test_an_optimizer_steps_as_ever_and_imports_no_compiler():
    plain, source = io.StringIO(), textwrap.dedent(STEPS)
    with contextlib.redirect_stdout(plain):
        exec(source.replace("{before}", ""), {})
    late = subprocess.run(
        [sys.executable, "-c", source.replace("{before}", textwrap.dedent(PUT_OFF))],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout.splitlines()
    assert late[0] == "True False True True"
    assert late[1:] == plain.getvalue().splitlines()[1:]


def test_where_torch_is_imported_already_nothing_changes():
    assert "torch" in sys.modules
    before = list(sys.meta_path)
    late_compiler.put_off()
    assert sys.meta_path == before
    assert not late_compiler.is_put_off()


def test_a_torch_without_the_decorators_is_left_as_it_is(monkeypatch):
    bare = ModuleType("bare")
    monkeypatch.setitem(sys.modules, "bare", bare)
    late_compiler._replace("bare", "_disable_dynamo", lambda function: function)
    assert not hasattr(bare, "_disable_dynamo")
    assert not late_compiler.is_put_off()


def test_a_decorator_with_arguments_of_its_own_gets_them(monkeypatch):
    given = []

    def decorate(function, recursive=True):
        given.append(recursive)
        return lambda: "told"

    call = late_compiler._either(decorate, lambda function: function, None, recursive=False)(
        lambda: "plain"
    )
    monkeypatch.setitem(sys.modules, "torch._dynamo", ModuleType("half imported"))
    assert (call(), given) == ("plain", [False])
    sys.modules["torch._dynamo"].disable = None
    assert call() == "told"
