"""One hook for all who hear the interpreter's audit events."""

import subprocess
import sys
import textwrap
from typing import Any

import pytest

from auditor.capture import process
from auditor.capture.process import hear, ignore

MINE, OTHER = "auditor.test.mine", "auditor.test.other"


def test_each_hears_its_events_and_nothing_after_it_ends():
    heard: list[tuple[str, str, tuple[Any, ...]]] = []

    def first(event: str, args: tuple[Any, ...]) -> None:
        heard.append(("first", event, args))

    def second(event: str, args: tuple[Any, ...]) -> None:
        heard.append(("second", event, args))

    try:
        hear((MINE,), first)
        hear((MINE, OTHER), second)
        sys.audit(MINE, 1)
        sys.audit(OTHER, 2)
        sys.audit("auditor.test.unheard", 3)
        assert heard == [("first", MINE, (1,)), ("second", MINE, (1,)), ("second", OTHER, (2,))]
        heard.clear()
        ignore(first)
        ignore(first)
        sys.audit(MINE, 4)
        assert heard == [("second", MINE, (4,))]
    finally:
        ignore(first)
        ignore(second)
    heard.clear()
    sys.audit(MINE, 5)
    sys.audit(OTHER, 6)
    assert heard == []
    assert not {MINE, OTHER} & set(process._HANDLERS)


def test_what_a_handler_raises_fails_what_was_about_to_happen():
    def refuse(event: str, args: tuple[Any, ...]) -> None:
        raise PermissionError("no")

    hear((MINE,), refuse)
    try:
        with pytest.raises(PermissionError):
            sys.audit(MINE)
    finally:
        ignore(refuse)


def test_there_is_one_hook_and_the_interpreter_ends_quietly(tmp_path):
    program = """
        import sys
        hooks = []
        sys.addaudithook(lambda event, args: event == "sys.addaudithook" and hooks.append(event))
        from auditor.capture.process import hear
        from auditor.capture.process import OpenedConfigs
        hear(("open",), lambda event, args: None)
        hear(("open", "os.mkdir"), lambda event, args: None)
        OpenedConfigs().start()
        print(len(hooks))

        class Late:
            def __del__(self, opens=open, path=sys.executable):
                opens(path, "rb").close()

        kept = Late()
        sys.modules["kept by nobody else"] = kept
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")
