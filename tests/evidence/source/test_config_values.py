"""Values of the configuration files that the target read, with their lines."""

import json

import pytest

from auditor.evidence.source.config_values import Configs
from auditor.evidence.table import Evidence
from auditor.recordings.folder import SCHEMA, Recording
from auditor.recordings.writer import store_sources


@pytest.fixture
def configs(tmp_path):
    """The table of these files, as a run records them."""

    def read(**files):
        home, folder = tmp_path / "home", tmp_path / "recording"
        home.mkdir()
        folder.mkdir()
        names = []
        for name, content in files.items():
            path = home / name.replace("__", ".")
            path.write_bytes(content)
            names.append(str(path))
        stored = store_sources(folder, str(home), iter(names))
        manifest = {"schema": SCHEMA, "cwd": str(home), "sources": stored, "device": "cpu"}
        (folder / "manifest.json").write_text(json.dumps({**manifest, "configs": list(stored)}))
        return Evidence(Recording(folder)).get(Configs)

    return read


def test_whole_numbers_and_flags_of_documents(configs):
    text = b"batch: 32\r\ndata:\r\n  num_workers: 0\r\n  pin: true\r\nrate: 0.1\r\nname: '5'\r\n"
    found = configs(config__yaml=text)
    wanted = [('["batch"]', 32, 1), ('["data", "num_workers"]', 0, 3), ('["data", "pin"]', True, 4)]
    assert [(each.keyword, each.value, each.site.line) for each in found.settings] == wanted
    assert (found.settings[1].site.text, found.allocator) == ("num_workers: 0", ())
    assert found.settings[0].site.file == "config.yaml"


def test_a_list_has_no_line_of_its_own(configs):
    assert configs(config__json=b"[7, 8]").settings == ()


def test_what_does_not_parse_is_left_out(configs):
    found = configs(bad__json=b"{", good__json=b'{"a": 1}')
    assert [each.value for each in found.settings] == [1]


def test_the_lines_of_scripts_that_set_the_allocator(configs):
    text = b"set -e\n export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\npython train.py\n"
    found = configs(run__sh=text, c__txt=text)
    (line,) = found.allocator
    assert (line.site.file, line.site.line) == ("run.sh", 2)
    assert line.where == ("PYTORCH_CUDA_ALLOC_CONF",)
    assert line.site.text == str(line.value).strip() and line.site.text.startswith("export")
    assert found.settings == ()
