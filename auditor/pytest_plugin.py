"""The pytest plugin ``audit``: a marker that audits a test's own training loop, and a fixture that
audits a step (docs/python.md). Imports nothing of ours before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from auditor.api import Report

MARKER = (
    'audit(fail_on="warning", select=[], ignore=[], steps=50): audit the training loop in the '
    "test, or what it gives to the fixture audit_report, and fail on findings"
)
OPTIONS = frozenset({"fail_on", "select", "ignore", "steps", "device"})


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def audit_report(request: pytest.FixtureRequest) -> Callable[..., Report]:
    """``audit_report(step, steps=20)`` audits a step as ``auditor.audit`` does, and gives its
    report.

    Options that the marker ``audit`` has are those of the call, too; with the marker, findings as
    bad as its ``fail_on`` fail the test.
    """
    mark = request.node.get_closest_marker("audit")
    given = _options(request.node, mark) if mark is not None else {}
    fail_on = given.pop("fail_on", "warning")

    def made(step: str | Callable[[], Any], **options: Any) -> Report:
        __tracebackhide__ = True
        from auditor import api, testing

        report = api.audit(step, **{**given, **options})
        if mark is not None:
            testing.check(report, fail_on)
        return report

    return made


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Audit the body of a test that has the marker, unless it gives its steps to the fixture."""
    mark = pyfuncitem.get_closest_marker("audit")
    if mark is None or "audit_report" in pyfuncitem.fixturenames:
        return (yield)
    options = _options(pyfuncitem, mark)
    from auditor import api, testing
    from auditor.errors import AuditProblem

    fail_on = options.pop("fail_on", "warning")
    try:
        with api.watching(str(pyfuncitem.path), **options) as watched:
            result = yield
    except AuditProblem as problem:
        hint = f"\n{problem.hint}" if problem.hint else ""
        raise _failure(f"audit: {problem.message}{hint}") from None
    try:
        testing.check(watched.report, fail_on)
    except testing.FindingsFound as found:
        raise _failure(str(found)) from None
    return result


def _failure(message: str) -> BaseException:
    """Raised ``from None``, so that pytest prints the message once and not its cause as well."""
    return pytest.fail.Exception(message, pytrace=False)


def pytest_exception_interact(call: pytest.CallInfo[Any], report: Any) -> None:
    """Of a failed assertion of ours only its message is shown: without our own frames."""
    error = call.excinfo.value if call.excinfo is not None else None
    if type(error).__name__ == "FindingsFound":
        with suppress(AttributeError):
            report.longrepr = str(error)


def _options(node: pytest.Item, mark: pytest.Mark) -> dict[str, Any]:
    """The marker's options. Fails the test for others."""
    unknown = sorted(set(mark.kwargs) - OPTIONS)
    if mark.args or unknown:
        what = ", ".join(unknown) if unknown else "words without a name"
        pytest.fail(
            f"@pytest.mark.audit of {node.name} does not take {what}; it takes "
            f"{', '.join(sorted(OPTIONS))}",
            pytrace=False,
        )
    if mark.kwargs.get("fail_on", "note") not in ("error", "warning", "note"):
        pytest.fail("@pytest.mark.audit: fail_on is error, warning or note", pytrace=False)
    return dict(mark.kwargs)
