"""Where each argument of one call is in the text, found from its tokens and checked against its
syntax.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.patch.source import Refused, SourceText

_NO_CODE = frozenset(
    {
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.COMMENT,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
)


@dataclass(frozen=True)
class Slot:
    """One argument as written, parentheses around it included. ``after`` is the offset behind its
    comma, None without.
    """

    node: ast.expr | ast.keyword
    start: int
    end: int
    after: int | None

    @property
    def keyword(self) -> str | None:
        """Keyword name, None for a positional or starred argument."""
        return self.node.arg if isinstance(self.node, ast.keyword) else None


@dataclass(frozen=True)
class Arguments:
    """The inside of a call's parentheses, ``text[opened:closed]``, and its arguments in the order
    written.
    """

    opened: int
    closed: int
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class _Token:
    text: str
    start: int
    end: int
    operator: bool

    @property
    def nesting(self) -> int:
        return (self.text in "([{") - (self.text in ")]}") if self.operator else 0

    def is_operator(self, text: str) -> bool:
        return self.operator and self.text == text


def read_arguments(source: SourceText, call: ast.Call) -> Arguments:
    """The arguments of a call. Raises :class:`Refused` if its text and its syntax do not agree."""
    callee_end = source.span(call.func)[1]
    tokens = list(_tokens(source, call))
    begin = next(
        (
            at
            for at, token in enumerate(tokens)
            if token.is_operator("(") and token.start >= callee_end
        ),
        None,
    )
    if begin is None or not tokens[-1].is_operator(")"):
        raise Refused("the arguments of the call cannot be read")
    nodes: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    slots = tuple(_slots(source, sorted(nodes, key=source.span), tokens[begin + 1 :]))
    if len(slots) != len(nodes):
        raise Refused("the arguments of the call cannot be read")
    return Arguments(tokens[begin].end, tokens[-1].start, slots)


def _slots(
    source: SourceText, nodes: list[ast.expr | ast.keyword], tokens: list[_Token]
) -> Iterator[Slot]:
    depth, first = 0, 0
    waiting = iter(nodes)
    node = next(waiting, None)
    for at, token in enumerate(tokens):
        if node is None:
            return
        closing = at == len(tokens) - 1
        # A lambda's own commas lie inside its node; the comma that ends an argument lies behind it.
        comma = token.is_operator(",") and depth == 0 and token.start >= source.span(node)[1]
        if closing or comma:
            yield Slot(node, tokens[first].start, tokens[at - 1].end, token.end if comma else None)
            node, first = next(waiting, None), at + 1
        depth += token.nesting


def _tokens(source: SourceText, call: ast.Call) -> Iterator[_Token]:
    start, end = source.span(call)
    code = f"({source.text[start:end]})"  # in parentheses, line ends and indentation mean nothing
    rows = [start - 1, *(start + at for at, character in enumerate(code) if character == "\n")]
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.type in _NO_CODE:
                continue
            first = rows[token.start[0] - 1] + token.start[1]
            if start <= first < end:
                last = rows[token.end[0] - 1] + token.end[1]
                yield _Token(token.string, first, last, token.type == tokenize.OP)
    except (tokenize.TokenError, SyntaxError):
        raise Refused("the arguments of the call cannot be read") from None
