"""CKPT008 in a run, on tables made by hand."""

import pytest
from auditor.rules.ckpt.files import CompiledPrefix
from msgspec.structs import replace

from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.recorded.compiles import CompiledRegions, Region
from auditor.evidence.scans import Scan, TensorFacts
from auditor.evidence.source.files import Source
from auditor.model import Site
from auditor.recordings.schema.data import SaveRow
from auditor.rule import NotLooked
from tests.rules.asking import lines

HERE, THERE = Site("t.py", 3, "save", ""), Site("t.py", 9, "save", "")
COMPILES = "import torch\nnet = torch.compile(net)\n"
NAMED = SaveRow(at=0, step=3, path="a.pt", replaced=False, bytes=None, compiled="_orig_mod.weight")


def prefixed(*each, text=COMPILES, at=2):
    regions = CompiledRegions((Region(Site("t.py", at), "Net", steps=8, watched=8),))
    table = lines(*each, sites=(HERE, THERE), of=8, kind=SaveRow)
    source = Source({"t.py": text})
    return list(CompiledPrefix().detect(table, regions, source))


def test_the_line_that_saves_the_names_of_a_compiled_module_is_told_once():
    plain = replace(NAMED, compiled="")
    (found,) = prefixed(plain, NAMED, plain, replace(plain, at=1))
    assert found.site == HERE
    assert "such as _orig_mod.weight: load_state_dict of the plain module" in found.message
    assert (found.steps, found.lost_us_per_step) == (1, None)
    assert prefixed(plain) == []
    with pytest.raises(NotLooked, match="saved no checkpoint in the"):
        prefixed()


@pytest.mark.parametrize(
    ("more", "n"),
    [
        ("state = {name.replace('_orig_mod.', ''): value}\n", 0),
        ("raw = net._orig_mod\n", 0),
        ("raw = getattr(net, '_orig_mod', net)\n", 0),
        ("# takes _orig_mod off elsewhere\n", 1),
        ("raw = net.my_orig_mod\nname = 'my_orig_mod.weight'\n", 1),
        ("net.load_state_dict(torch.load('a.pt'))\n", 0),
        ("other.load_state_dict(torch.load('a.pt'))\n", 1),
        ("optimizer.load_state_dict(torch.load('a.pt')['optimizer'])\n", 1),
    ],
)
def test_a_program_that_knows_the_names_is_silent(more, n):
    assert len(prefixed(NAMED, text=COMPILES + more)) == n


def test_a_state_that_is_loaded_before_it_is_compiled_is_no_excuse():
    text = "import torch\nnet.load_state_dict(torch.load('a.pt'))\nnet = torch.compile(net)\n"
    assert len(prefixed(NAMED, text=text, at=3)) == 1
    assert len(prefixed(NAMED, text=COMPILES.replace("net = ", "kept[0] = "))) == 1


def test_a_checkpoint_behind_one_with_plain_names():
    plain, named = (
        Checkpoint(
            Scan(
                path=f"/r/{file}",
                format="torch zip",
                size=9,
                tensors=(TensorFacts(name, "float32", (2,), "model"),),
            )
        )
        for file, name in (("a.pt", "weight"), ("b.pt", "_orig_mod.weight"))
    )
    (found,) = CompiledPrefix().in_checkpoint(Checkpoints((plain, named)))
    assert found.message.startswith("b.pt: 1 weight of 1 named as in a compiled module")
    assert (found.steps, found.facts) == (1, (("file", "/r/b.pt"),))
