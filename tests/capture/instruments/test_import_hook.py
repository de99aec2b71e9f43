"""What is done around the import of a module."""

import gc
import importlib
import sys

import pytest

from auditor.capture.instruments.monkeypatch import AfterImport


@pytest.mark.parametrize("on", [True, False])
def test_no_garbage_is_looked_for_while_a_module_is_imported(tmp_path, monkeypatch, on):
    (tmp_path / "large_one.py").write_text("import gc\nON = gc.isenabled()\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen = []
    AfterImport("large_one", lambda: seen.append(gc.isenabled())).install()
    (gc.enable if on else gc.disable)()
    try:
        assert importlib.import_module("large_one").ON is False
        assert gc.isenabled() is on
        assert seen == [False]
    finally:
        gc.enable()
        sys.modules.pop("large_one")


def test_an_import_that_fails_leaves_the_collector_on(tmp_path, monkeypatch):
    (tmp_path / "broken_one.py").write_text("raise ValueError\n")
    monkeypatch.syspath_prepend(tmp_path)
    hook = AfterImport("broken_one", lambda: None)
    hook.install()
    with pytest.raises(ValueError):
        importlib.import_module("broken_one")
    hook.uninstall()
    assert gc.isenabled()
