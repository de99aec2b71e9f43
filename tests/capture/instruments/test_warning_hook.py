"""The hook on warnings: what it hears, and that the program sees and raises what it did without it."""

import warnings

import pytest

from auditor.capture.instruments.monkeypatch import LOOKING, Patches
from auditor.capture.probes.step.torch_warnings import HEARD, WarningHook

TEXT = "`parameters` is an empty generator, no gradient clipping will occur."


@pytest.fixture
def shown(monkeypatch):
    """What the program's user sees: file, line, text."""
    seen: list[tuple[str, int, str]] = []
    with warnings.catch_warnings():
        warnings.resetwarnings()
        monkeypatch.setattr(
            warnings,
            "showwarning",
            lambda message, kind, file, line, *_: seen.append((file, line, str(message))),
        )
        yield seen


@pytest.fixture
def heard(shown):
    names: list[str] = []
    hook = WarningHook(lambda name, _: names.append(name))
    hook.place()
    yield names
    hook.remove()
    assert not any(each is HEARD for each in warnings.filters)


def says(text: str = TEXT) -> None:
    warnings.warn(text, stacklevel=2)


@pytest.mark.parametrize(
    ("action", "text", "times", "visible"),
    [("default", TEXT, 3, 1), ("always", TEXT, 2, 2), ("default", "something else", 2, 1)],
)
def test_each_is_heard_and_shown_as_the_program_has_it(heard, shown, action, text, times, visible):
    if action != "default":
        warnings.simplefilter(action)
    for _ in range(times):
        says(text)
    assert heard == ["empty clipping"] * (times if text == TEXT else 0)
    assert [each for _, _, each in shown] == [text] * visible


def test_what_the_program_hides_stays_hidden(shown):
    names: list[str] = []
    warnings.filterwarnings("ignore", message=".*empty generator")
    hook = WarningHook(lambda name, _: names.append(name))
    hook.place()
    says()
    hook.remove()
    assert names and not shown


def test_an_error_of_the_programs_filter_is_raised(shown):
    warnings.simplefilter("error")
    hook = WarningHook(lambda *_: None)
    hook.place()
    with pytest.raises(UserWarning, match="empty generator"):
        says()
    hook.remove()
    with pytest.raises(UserWarning, match="empty generator"):
        says()


def test_a_wrapper_of_ours_is_not_named(heard, shown):
    class Owner:
        def says(self, text: str) -> None:
            warnings.warn(text, stacklevel=2)

    patches = Patches()
    patches.around(Owner, "says", before=lambda *_: None)
    for text in (TEXT, "something else"):
        Owner().says(text)
    patches.undo()
    assert [file for file, _, _ in shown] == [__file__, __file__]


def test_a_look_of_ours_is_neither_heard_nor_shown(heard, shown):
    with LOOKING:
        says()
    assert not heard and not shown


def test_a_function_that_the_program_puts_around_it_is_called_once(shown, monkeypatch):
    names: list[str] = []
    logged: list[str] = []
    hook = WarningHook(lambda name, _: names.append(name))
    hook.place()
    before = warnings.showwarning

    def logs(message: Warning, *rest: object) -> None:
        logged.append(str(message))
        before(message, *rest)

    monkeypatch.setattr(warnings, "showwarning", logs)
    hook.place()  # as each step does
    says()
    assert names == ["empty clipping"] and logged == [TEXT] and len(shown) == 1
    hook.remove()
    assert warnings.showwarning is logs
    says("after the audit")
    assert len(shown) == 2, "what still holds the hook hands on"
