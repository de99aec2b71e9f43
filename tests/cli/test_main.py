"""The command line around its commands: how they end."""

import os
import signal

import click
import pytest
from click.testing import CliRunner

from auditor.cli.usage import EXIT_INTERRUPTED, AuditGroup


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_command_that_is_told_to_end_is_interrupted_and_may_finish_its_work(name):
    before, written = signal.getsignal(getattr(signal, name)), []

    @click.group(cls=AuditGroup)
    def audit():
        """Stand in for the command line."""

    @audit.command()
    def work():
        try:
            os.kill(os.getpid(), getattr(signal, name))
            signal.pause()
        except KeyboardInterrupt:
            written.append("report")
            raise

    assert CliRunner().invoke(audit, ["work"]).exit_code == EXIT_INTERRUPTED
    assert written == ["report"]
    assert signal.getsignal(getattr(signal, name)) is before
