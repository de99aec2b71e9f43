"""The names of keywords in the call that a frame waits for, whatever the interpreter."""

import sys
from typing import Any

from auditor.capture.probes.graph.backward import keywords_given


class Library:
    """Asks about the frame that called it."""

    def ask(self, *_: Any, **__: Any) -> tuple[str, ...]:
        return keywords_given(sys._getframe(1))


ask = Library().ask


def test_none_where_the_call_names_none():
    assert ask() == ask(1, 2) == ask(("retain_graph",)) == ()
    assert ask(dict(retain_graph=True)) == ()
    given = {"retain_graph": True}
    assert ask(**given) == ()  # whatever they are then, the line does not name them


def test_of_the_call_that_runs_and_no_other_on_the_line():
    assert (ask(retain_graph=True), ask(1)) == (("retain_graph",), ())
    assert ask(ask(retain_graph=True)) == ()
    assert ask(inner=ask(retain_graph=True)) == ("inner",)


def test_a_frame_that_is_in_no_call_names_none():
    class Truth:
        def __bool__(self) -> bool:
            assert keywords_given(sys._getframe(1)) == ()
            return True

    if ask(retain_graph=True) and Truth():
        return
    raise AssertionError
