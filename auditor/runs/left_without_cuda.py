"""A program that asked about CUDA, found none and left by ``sys.exit`` can be rehearsed."""

import ast
import linecache
import os
import traceback

CALLERS = 2
"""Frames from the one that left whose tests count: ``sys.exit``'s, and ``fail("no GPU")``'s."""

ON_CPU = "--device rehearse plays a CUDA device on the CPU"


def left_without_cuda(error: BaseException) -> str | None:
    """What to say of a program that left in a branch whose test asks for CUDA; else None."""
    if not isinstance(error, SystemExit):
        return None
    frames = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    for file, line in frames[-CALLERS:]:
        if any("cuda" in test for test in _tests_around(file, line)):
            where = f"{os.path.basename(file)}:{line}"
            return f"the program left at {where}, where it had asked for CUDA: it is not available"
    return None


def _tests_around(file: str, line: int) -> list[str]:
    """Conditions of the ``if`` statements around a line, in whichever branch of them it is."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return []
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, (ast.If, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    begins = max((node.lineno for node in around if not isinstance(node, ast.If)), default=0)
    return [
        ast.unparse(node.test)
        for node in around
        if isinstance(node, ast.If) and node.lineno >= begins
    ]
