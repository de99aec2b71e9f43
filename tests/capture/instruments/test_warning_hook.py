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


def test_each_is_heard_and_the_default_filter_shows_one(heard, shown):
    for _ in range(3):
        says()
    assert heard == ["empty clipping"] * 3
    assert [text for _, _, text in shown] == [TEXT]


def test_a_program_that_asks_for_all_sees_all(heard, shown):
    warnings.simplefilter("always")
    for _ in range(2):
        says()
    assert len(shown) == 2


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


def test_other_warnings_pass_as_they_are(heard, shown):
    for _ in range(2):
        says("something else")
    assert not heard
    assert [text for _, _, text in shown] == ["something else"]


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
