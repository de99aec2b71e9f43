"""Probes are found where they lie, in an order that the probes themselves say."""

import contextlib
import importlib
import itertools
import sys
from pathlib import Path

import pytest

from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.numerics.nonfinite import NonfiniteProbe
from auditor.capture.probes.registry import PROBES, find, homes, select
from auditor.evidence.recorded.steps import TIMED
from auditor.model.devices import CPU, SHADOW, DeviceInfo
from auditor.recordings.folder import RecordingWriter

_NUMBER = itertools.count()
HEAD = "from auditor.capture.probes.base import Probe\n"
PROBE = (
    "class {cls}(Probe):\n    name, parts, passes, after = {name!r}, ('reads',), "
    "frozenset({{'loud'}}), {after}\n"
)


@pytest.fixture
def found(tmp_path, monkeypatch):
    """Names of the probes in a package with these files."""
    monkeypatch.syspath_prepend(str(tmp_path))
    name = f"family{next(_NUMBER)}"

    def names(files: dict[str, str]) -> list[str]:
        for file, source in {"__init__.py": "", **files}.items():
            path = tmp_path / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            (path.parent / "__init__.py").touch()
            path.write_text(HEAD + source)
        return [probe.name for probe in find(homes(importlib.import_module(name)))]

    yield names
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        del sys.modules[module]


def probe(name: str, cls: str = "Sample", after: tuple[str, ...] = ()) -> str:
    return PROBE.format(name=name, cls=cls, after=after)


def test_probes_come_in_the_order_of_their_modules_but_after_those_that_they_name(found):
    files = {
        "a/one.py": probe("one", after=("three",)),
        "a/helper.py": "HELPS = True\n",
        "a/two.py": "class Base(Probe):\n    pass\n" + probe("two"),
        "b/three.py": "from ..a.two import Sample as Other\n" + probe("three"),
        "b/four.py": probe("four", after=("one",)),
        "aside.py": probe("aside"),
    }
    assert found(files) == ["two", "three", "one", "four"]


def test_two_probes_of_one_name_are_an_error(found):
    with pytest.raises(TypeError, match=r"two probes are named 'same': \w+\.a\.x and \w+\.b\.y"):
        found({"a/x.py": probe("same"), "b/y.py": probe("same")})


@pytest.mark.parametrize(
    ("earlier", "later"), [("numerics", "doubles"), ("numerics", "piecewise"), ("birth", "finite")]
)
def test_a_watch_is_entered_in_the_order_that_its_rows_depend_on(earlier, later):
    names = [probe.name for probe in PROBES]
    assert names.index(earlier) < names.index(later)


def _selected(folder: Path, device: DeviceInfo, *parts: str) -> list[Probe]:
    writer = RecordingWriter(folder)
    return select(parts, Context(writer, Frames(writer), device))


def test_a_rehearsal_has_its_device_first_and_none_of_what_a_device_must_answer(tmp_path):
    names = [
        probe.name for probe in _selected(tmp_path, SHADOW, "reads", "leaner", "graphs", "fed")
    ]
    assert names[0] == "rehearsal"
    assert {"leaner", "holders", "modes", "training", "owners"} < set(names)
    assert not {"reads", "fed"} & set(names)


def test_a_run_has_what_its_rules_need_and_what_every_recording_has(tmp_path):
    names = {probe.name for probe in _selected(tmp_path, CPU, "reads", "leaner")}
    assert names == {"modes", "training", "owners", "reads", "eager_held", "torch_warnings"}


@pytest.mark.parametrize("own", PROBES, ids=lambda own: own.name)
def test_no_probe_adds_or_removes_a_hook_behind_optimizers_as_passes_change(own, tmp_path):
    """In a script a step ends inside such a hook, while torch walks their list."""
    from torch.optim import optimizer

    with contextlib.closing(RecordingWriter(tmp_path)) as writer:
        context = Context(writer, Frames(writer), device=CPU)
        probe = own(context)
        probe.install()
        try:
            hooks = list(optimizer._global_optimizer_post_hooks)
            for context.pass_name in sorted(probe.passes):
                probe.start()
                assert list(optimizer._global_optimizer_post_hooks) == hooks, "while it starts"
                probe.stop()
                assert list(optimizer._global_optimizer_post_hooks) == hooks, "while it stops"
        finally:
            probe.uninstall()


def test_values_are_watched_in_all_timed_passes():
    """A pass that nobody watches would give its step to the next one."""
    assert TIMED.keys() <= NonfiniteProbe.passes
