"""Which call of a program made the float64 tensor that its step used."""

from __future__ import annotations

import pytest
from auditor.rules.cfg.double_origin import double_origins, origin_of, origin_of_cast

from auditor.evidence.source.files import Source
from auditor.model import Site

DATASET = """\
class Rows(Dataset):
    def __init__(self, rng):
        self.x = rng.normal(size=(64, 8)).astype(np.float32)
        self.y = self.x @ rng.normal(size=(8, 1))

    def __getitem__(self, i):
        x = torch.from_numpy(self.x[i])
        y = torch.from_numpy(self.y[i])
        return x, y
"""


def widths(text):
    found = double_origins(Source({"a.py": text}))
    return [(each.site.line, each.width) for each in found]


def test_a_dataset_whose_targets_alone_are_wide():
    assert widths(DATASET) == [(8, "wide")]


@pytest.mark.parametrize(
    ("value", "width"),
    [
        ("torch.from_numpy(np.hanning(8))", "wide"),
        ("torch.from_numpy(np.hanning(8)).to(x.device)", "wide"),
        ("torch.from_numpy(np.hanning(8)).float()", None),
        ("torch.from_numpy(np.hanning(8)).unsqueeze(0).to(torch.float32)", None),
        ("torch.from_numpy(np.hanning(8)).to(device, torch.float32)", None),
        ("torch.from_numpy(np.hanning(8).astype('float32'))", None),
        ("torch.from_numpy(np.hanning(8).astype(float))", "wide"),
        ("torch.from_numpy(np.zeros(8, dtype=np.float32))", None),
        ("torch.from_numpy(rng.integers(0, 4, 8))", None),
        ("torch.from_numpy(np.stack([1.0, 2.0]))", "wide"),
        ("torch.from_numpy(array)", "unknown"),
        ("torch.tensor(np.random.randn(8))", "wide"),
        ("torch.tensor(np.random.randn(8), dtype=torch.float32)", None),
        ("torch.tensor(frame['y'].values)", "wide"),
        ("torch.tensor(frame['y'].values, dtype=torch.float)", None),
        ("torch.tensor([1.0, 2.0])", None),
        ("torch.tensor(np.array([r.w for r in rows]))", "unknown"),
        ("torch.tensor(values)", None),
        ("torch.as_tensor(2 * np.linspace(0, 1, 8))", "wide"),
        ("torch.zeros(8, dtype=torch.float64)", "wide"),
        ("torch.zeros(8, dtype=torch.double)", "wide"),
        ("torch.zeros(8)", None),
        ("torch.set_default_dtype(torch.float64)", "wide"),
        ("torch.set_default_dtype(torch.float32)", None),
        ("np.hanning(8)", None),
    ],
)
def test_how_wide_a_tensor_becomes(value, width):
    assert widths(f"y = {value}\n# float64\n") == ([] if width is None else [(1, width)])


def test_the_name_decides_between_two():
    text = (
        "def make():\n"
        "    one = torch.from_numpy(np.ones(8))\n"
        "    two = torch.from_numpy(np.ones(8))\n"
        "    return model(x) * two\n"
        "class M:\n"
        "    def __init__(self):\n"
        "        self.window = torch.from_numpy(np.ones(8))\n"
    )
    origins = double_origins(Source({"a.py": text}))

    def found(line, said):
        site = origin_of(Site("a.py", line, "", said), origins)
        return site and site.line

    assert found(4, "return model(x) * two") == 3
    assert found(9, "out = model(x) * two") is None  # a name of another function
    assert found(9, "out = self.layer(x) * self.window") == 7
    assert found(3, "two = torch.from_numpy(np.ones(8))") is None  # the line itself


def test_without_a_name_it_is_the_only_one():
    origins = double_origins(Source({"a.py": DATASET}))
    site = origin_of(Site("b.py", 40, "", "loss = criterion(model(x), y)"), origins)
    assert site is not None
    assert (site.file, site.line) == ("a.py", 8)
    assert origin_of(Site("b.py", 40, "", "loss"), [*origins, *origins]) == site
    assert origin_of(Site("b.py", 40, "", "loss"), []) is None


MORE = [
    ("from_numpy(np.ones(8))", "wide"),
    ("torch.Tensor(np.ones(8))", None),  # it is float32 whatever it is given
    ("tf.tensor(np.ones(8))", None),
    ("a.torch.tensor(np.ones(8))", None),
    ("torch.full((8,), 1.0, dtype='double')", "wide"),
    ("torch.asarray(np.ones(8), dtype=np.float64)", "wide"),
    ("torch.tensor(dtype=torch.float64)", "wide"),
    ("torch.tensor()", None),
    ("torch.tensor(np.ones(8), names)", "wide"),
    ("torch.tensor(names, np.ones(8))", None),
    ("torch.tensor(np.array(rows), device)", "unknown"),
    ("torch.tensor(rows, np.array(rows))", None),
    ("torch.tensor([numpy.array(rows)])", None),
    ("torch.tensor(numpy.array(rows))", "unknown"),
    ("torch.from_numpy(rows)", "unknown"),
    ("torch.from_numpy(np.ones(8) * 2)", "wide"),
    ("torch.from_numpy(2 * rows)", "unknown"),
    ("torch.from_numpy(np.argmax(x) + 1)", None),
    ("torch.from_numpy(np.argmax(x) + np.ones(8))", "wide"),
    ("torch.from_numpy(np.argmax(x) + rows)", "unknown"),
    ("torch.from_numpy(-np.ones(8))", "wide"),
    ("torch.from_numpy(np.ones(8)[0:4])", "wide"),
    ("torch.from_numpy(np.ones(8).T)", "wide"),
    ("torch.from_numpy(rows.T)", "unknown"),
    ("torch.from_numpy(frame.values)", "wide"),
    ("torch.from_numpy(np.argmax(x).values)", None),
    ("torch.from_numpy(rows.shape)", "unknown"),
    ("torch.from_numpy(lambda: 1)", "unknown"),
    ("torch.from_numpy(3)", None),
    ("torch.from_numpy(np.array([1, 2.5]))", "wide"),
    ("torch.from_numpy(np.array([1, 2]))", None),
    ("torch.from_numpy(np.array((1.5, rows)))", "wide"),
    ("torch.from_numpy(np.array((1, rows)))", "unknown"),
    ("torch.from_numpy(np.array([np.ones(2) for i in x]))", "wide"),
    ("torch.from_numpy(np.stack(np.ones(2) for i in x))", "wide"),
    ("torch.from_numpy(np.stack([np.argmax(i) for i in x]))", None),
    ("torch.from_numpy(np.sqrt())", "unknown"),
    ("torch.from_numpy(np.where(np.argmax(x), np.ones(2)))", None),
    ("torch.from_numpy(np.ones(8).reshape(2, 4))", "wide"),
    ("torch.from_numpy(rows.reshape(np.ones(8)))", "unknown"),
    ("torch.from_numpy(numpy.copy(np.ones(8)))", "wide"),
    ("torch.from_numpy(torch.zeros(8).numpy())", "unknown"),
    ("torch.from_numpy(torch.abs(np.ones(8)))", "wide"),
    ("torch.tensor(torch.zeros(8))", None),
    ("torch.from_numpy(rows.astype(np.float64))", "wide"),
    ("torch.from_numpy(rows.astype('f8'))", "wide"),
    ("torch.from_numpy(rows.astype(int))", None),
    ("torch.from_numpy(rows.astype())", "unknown"),
    ("torch.from_numpy(np.ones(8)).half()", None),
    ("torch.from_numpy(np.ones(8)).double()", "wide"),
    ("torch.from_numpy(np.ones(8)).to(torch.float64)", "wide"),
    ("torch.from_numpy(np.ones(8)).to(dtype=torch.float32)", None),
    ("torch.from_numpy(np.ones(8)).type(torch.float16)", None),
    ("torch.from_numpy(np.ones(8)).to(torch.device('cuda'))", "wide"),
    ("torch.from_numpy(np.ones(8)).view(torch.float32)", "wide"),
    ("torch.from_numpy(np.ones(8))[0].float()", None),
    ("torch.from_numpy(np.ones(8)).shape", "wide"),
    ("torch.FloatTensor(torch.from_numpy(np.ones(8)))", None),
    ("f(torch.from_numpy(np.ones(8)))", "wide"),
    ("f(torch.from_numpy(np.ones(8))).float()", None),
    ("g.float(torch.from_numpy(np.ones(8)))", None),
    ("set_default_dtype('float64')", "wide"),
    ("torch.set_default_dtype(kind)", None),
]


@pytest.mark.parametrize(("value", "width"), MORE)
def test_how_wide_further_forms_are(value, width):
    text = f"y = {value}\n# float64\n"
    assert widths(text) == ([] if width is None else [(1, width)])


def through(names):
    """An array that goes through so many names."""
    lines = ["a0 = np.ones(8)", *(f"a{n} = a{n - 1}" for n in range(1, names))]
    return widths("\n".join([*lines, f"y = torch.from_numpy(a{names - 1})"]))


def test_names_are_followed_seven_times():
    assert [through(names)[0][1] for names in (1, 7, 8)] == ["wide", "wide", "unknown"]


@pytest.mark.parametrize(
    "form", ["{}.T", "-{}", "{}[0]", "({} * 2)", "{}.copy()", "np.array([{}])"]
)
def test_every_form_is_a_step(form):
    def nested(times):
        value = "np.ones(8)"
        for _ in range(times):
            value = form.format(value)
        return [width for _, width in widths(f"y = torch.from_numpy({value})\n")]

    assert nested(7) == ["wide"]
    assert nested(8) == ["unknown"]


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("a = np.ones(8)\ny = torch.from_numpy(a)", "wide"),
        ("y = torch.from_numpy(a)\na = np.ones(8)", "unknown"),
        ("a = np.ones(8)\na = np.argmax(x)\ny = torch.from_numpy(a)", None),
        ("a = np.argmax(x)\na = np.ones(8)\ny = torch.from_numpy(a)", "wide"),
        ("a = np.ones(8)\ndef f():\n    y = torch.from_numpy(a)", "wide"),
        ("a = np.ones(8)\ndef f():\n    a = np.argmax(x)\n    y = torch.from_numpy(a)", None),
        ("def f():\n    a = np.ones(8)\ndef g():\n    y = torch.from_numpy(a)", "wide"),
        ("class C:\n    a = np.ones(8)\n    def f(self):\n        torch.from_numpy(a)", "wide"),
        (
            (
                "class C:\n    def f(self):\n        torch.from_numpy(self.a)\n"
                "    def g(self):\n        self.a = np.ones(8)"
            ),
            "wide",
        ),
        ("a = a = b = np.ones(8)\ny = torch.from_numpy(b)", "wide"),
        ("a = torch.from_numpy(a)", "unknown"),
    ],
)
def test_what_a_name_was_given_last(text, width):
    assert [each for _, each in widths(text + "\n")] == ([] if width is None else [width])


def names_of(text):
    (found,) = double_origins(Source({"a.py": text + "\n"}))
    return sorted(found.names), found.known


@pytest.mark.parametrize(
    ("text", "names", "known"),
    [
        ("y = torch.from_numpy(np.ones(8))", ["y"], None),
        ("y, z = torch.from_numpy(np.ones(8)), 1", ["y", "z"], None),
        ("self.y = torch.from_numpy(np.ones(8))", [".y"], None),
        ("self.y[i] = torch.from_numpy(np.ones(8))", [".y"], None),
        ("a = b = torch.from_numpy(np.ones(8))", ["a", "b"], None),
        ("f(torch.from_numpy(np.ones(8)))", [], None),
        ("m.register_buffer('w', torch.from_numpy(np.ones(8)))", [".w"], None),
        ("m.register_parameter('w', torch.from_numpy(np.ones(8)), 3)", [".w"], None),
        ("m.register('w', torch.from_numpy(np.ones(8)))", [], None),
        ("def f():\n    y = torch.from_numpy(np.ones(8))\n    return y", ["y"], range(1, 4)),
        ("async def f():\n    y = torch.from_numpy(np.ones(8))", ["y"], range(1, 3)),
    ],
)
def test_what_the_result_is_called(text, names, known):
    assert names_of(text) == (names, known)


@pytest.mark.parametrize(
    ("line", "said", "used"),
    [
        (2, "f(y)", True),
        (1, "f(y)", True),
        (3, "f(y)", True),
        (4, "f(y)", False),
        (2, "f(yy)", False),
        (2, "f(my)", False),
        (2, "f(a.y)", False),
        (2, "f(y.a)", True),
    ],
)
def test_a_name_is_used_in_its_function_alone(line, said, used):
    text = "def f():\n    y = torch.from_numpy(np.ones(8))\n    return y\nf(1)\n"
    (found,) = double_origins(Source({"a.py": text}))
    assert found.is_used_at(Site("a.py", line, "", said)) is used
    assert not found.is_used_at(Site("b.py", line, "", said))


def test_the_wide_ones_come_before_the_unknown():
    text = "a = torch.from_numpy(rows)\nb = torch.from_numpy(np.ones(8))\n"
    origins = double_origins(Source({"a.py": text}))
    assert origin_of(Site("a.py", 9, "", "f(a)"), origins).line == 2
    unknown = double_origins(Source({"a.py": "a = torch.from_numpy(rows)\n"}))
    assert origin_of(Site("a.py", 9, "", "f(x)"), unknown).line == 1
    two = double_origins(Source({"a.py": "a = torch.from_numpy(x)\nb = torch.from_numpy(y)\n"}))
    assert origin_of(Site("a.py", 9, "", "f(a)"), two) is None
    wide = text.replace("rows", "np.ones(2)")
    assert origin_of(Site("a.py", 9, "", "a + b"), double_origins(Source({"a.py": wide}))) is None
    assert origin_of(Site("a.py", 9, "", "f(a)"), double_origins(Source({"a.py": wide}))).line == 1
    assert origin_of(Site("b.py", 1, "", "f(x)"), unknown).line == 1


@pytest.mark.parametrize("word", ["from_numpy", "tensor(", "float64", "double"])
def test_files_without_such_words_are_not_looked_at(word):
    assert double_origins(Source({"a.py": "x = 1\n"})) == ()
    text = {"from_numpy": "torch.from_numpy(rows)", "tensor(": "torch.tensor(np.ones(8))"}
    other = f"torch.zeros(8, dtype=torch.{word})"
    assert len(double_origins(Source({"a.py": text.get(word, other) + "\n"}))) == 1


def test_a_file_that_is_no_python_has_none():
    assert double_origins(Source({"a.py": "from_numpy ( (\n"})) == ()


CAST = """
frames = torch.from_numpy(render(9)).to(device)
model = Net().to(device=device, dtype=frames.dtype)
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (CAST, 2),
        (CAST.replace("device=device, dtype=frames.dtype", "frames.dtype"), 2),
        (CAST.replace("frames", "self.frames"), 2),
        (CAST.replace("frames =", "other ="), None),
        (CAST.replace("(render(9))", "(render(9)).float()"), None),
        (CAST.replace("frames.dtype", "frames.device"), None),
        (CAST + "head = Net().to(frames.dtype)\n", None),
        (CAST.replace("\nframes", "\ndef f():\n  frames"), None),
    ],
)
def test_the_array_to_whose_dtype_something_is_cast(text, line):
    source = Source({"a.py": text})
    found = origin_of_cast(source, double_origins(source))
    assert (found is None) == (line is None)
    if found is not None:
        assert [each.line for each in found] == [line, line + 1]
