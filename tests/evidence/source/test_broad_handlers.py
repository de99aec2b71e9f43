"""Handlers that catch every error: which are meant for memory, and which let none out."""

from __future__ import annotations

import ast

import pytest
from auditor.rules.mem.broad_handlers import goes_on, is_broad, means_memory, shrinks, swallows
from auditor.rules.mem.oom_handlers_source import functions

from auditor.syntax.index import index_of


def handler(body="pass", clause="except Exception as error:"):
    lines = "".join(f"  {line}\n" for line in body.split("\n"))
    text = f"try:\n  run()\n{clause}\n{lines}"
    tree = ast.parse(text)
    return next(node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)), text


@pytest.mark.parametrize(
    ("clause", "broad"),
    [
        ("except:", True),
        ("except Exception:", True),
        ("except BaseException as e:", True),
        ("except RuntimeError:", True),
        ("except builtins.RuntimeError:", True),
        ("except (ValueError, RuntimeError):", True),
        ("except (ValueError, KeyError):", False),
        ("except ValueError:", False),
        ("except torch.cuda.OutOfMemoryError:", False),
    ],
)
def test_classes_that_every_error_is_one_of(clause, broad):
    assert is_broad(handler(clause=clause)[0]) is broad


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        ("pass", False),
        ("pass  # out of memory", True),
        ("pass  # out_of_memory", True),
        ("print('OOM')", True),
        ("ooms += 1", True),
        ("room = 1", False),
        ("oomph = 1", False),
        ("log('not enough memory')", True),
        ("log('memory is full')", True),
        ("log('from memory')", False),
        ("log('VRAM')", True),
        ("torch.cuda.empty_cache()", True),
        ("print(torch.cuda.memory_summary())", True),
        ("batch_size //= 2", True),
    ],
)
def test_what_a_handler_says_of_itself(body, meant):
    found, text = handler(body)
    assert means_memory(found, text) is meant


@pytest.mark.parametrize("place", ["before", "after"])
def test_what_stands_around_a_handler_says_nothing(place):
    found, text = handler("pass\nx = 1")
    said = "# out of memory\n"
    text = text.replace("try:\n  run()\n", f"try:\n  {said}") if place == "before" else text + said
    assert not means_memory(found, text)
    assert means_memory(found, text.replace("except Exception", f"except Exception {said[:-1]}"))
    assert means_memory(found, text.replace("x = 1", f"x = 1  {said[:-1]}"))


@pytest.mark.parametrize(
    ("statement", "less"),
    [
        ("size //= 2", True),
        ("parts *= 2", True),
        ("size /= 2", False),
        ("size //= 3", False),
        ("size -= 2", False),
        ("self.micro_batch //= 2", True),
        ("bs //= 2", True),
        ("self.n_mb *= 2", True),
        ("lr //= 2", False),
        ("obs //= 2", False),
        ("size = size // 2", True),
        ("size = max(1, size // 2)", True),
        ("size = other_size // 2", False),
        ("self.size = self.size // 2", True),
        ("size: int = size // 2", False),
        ("chunks = 2 * chunks", False),
        ("chunks = chunks * 2", True),
        ("lr = lr * 2", False),
        ("torch.cuda.reset_peak_memory_stats()", True),
        ("empty_cache", False),
        ("if big:\n size //= 2", True),
        ("def later():\n size //= 2", False),
        ("later = lambda: empty_cache()", False),
        ("class Later:\n size //= 2", False),
    ],
)
def test_what_tries_with_less(statement, less):
    assert shrinks(ast.parse(statement).body) is less


@pytest.mark.parametrize(
    ("statement", "on"),
    [
        ("print(1)", True),
        ("raise", False),
        ("assert x", False),
        ("sys.exit(1)", False),
        ("os.kill(os.getpid(), 9)", False),
        ("exit", True),
        ("if x:\n raise", False),
        ("def later():\n raise", True),
        ("", True),
    ],
)
def test_statements_that_go_on(statement, on):
    assert goes_on(ast.parse(statement).body) is on


RAISES = "def check(e=None):\n if e:\n  raise e\n return 1\n"
ENDS = "def stop():\n log()\n raise SystemExit\n"
KEEPS = "def note(e):\n return 1\n"


@pytest.mark.parametrize(
    ("body", "all_of_them"),
    [
        ("pass", True),
        ("print(error)", True),
        ("skipped.append(error)", True),
        ("break", False),
        ("if x:\n  break\npass", True),
        ("raise", False),
        ("if x:\n  raise", False),
        ("assert x", False),
        ("os._exit(1)", False),
        ("report(error)", False),
        ("report(exc=error)", False),
        ("report(str(error))", True),
        ("report(x)", True),
        ("check()", True),
        ("check(error)", False),
        ("check(e=error)", False),
        ("stop()", False),
        ("note(error)", True),
        ("note(1)", True),
    ],
)
def test_a_handler_that_lets_no_error_out(body, all_of_them):
    definitions = functions([index_of(RAISES + ENDS + KEEPS)])
    assert swallows(handler(body)[0], definitions) is all_of_them


def test_what_raises_again_needs_no_name_of_the_error():
    definitions = functions([index_of(RAISES + ENDS)])
    assert not swallows(handler("check()", "except:")[0], definitions)
    assert swallows(handler("unknown()", "except:")[0], definitions)
    assert not swallows(handler("pass", "except ValueError:")[0], definitions)
