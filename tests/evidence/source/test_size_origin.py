"""Lines that make the size of a batch which another line moves to the device."""

import textwrap

import pytest
from auditor.rules.mem.varying_sizes import size_made_at

from auditor.evidence.source.files import Source
from auditor.model import Site

CASES = {
    "pad_sequence in the collate function": """
        def collate(batch):
            rows, labels = zip(*batch)
            labels = torch.zeros(len(labels), 3)
            return pad_sequence(rows), labels  # made

        loader = DataLoader(data, collate_fn=collate)

        def step():
            x, y = next(batches)
            model(x.to(device))  # moved
    """,
    "by hand in a collating object": """
        class Collate:
            def __init__(self, pad):
                self.pad = torch.zeros(pad, 3)

            def __call__(self, batch):
                longest = max(map(len, batch))
                return torch.full((len(batch), longest), 0)  # made

        loader = DataLoader(data, collate_fn=Collate(0))
        for x in loader:
            x = x.cuda()  # moved
    """,
    "a method, bound": """
        class Data:
            def collate(self, batch):
                return F.pad(batch, (0, self.longest(batch)))  # made

        loader = DataLoader(data, collate_fn=partial(data.collate, 1))
        for batch in loader:
            batch = {k: v.to("cuda") for k, v in batch.items()}  # moved
    """,
    "cropped in the dataset": """
        class Crops(Dataset):
            def __getitem__(self, index):
                first = self.images[:100]
                return image[:, top : top + side, :side]  # made

        for x in DataLoader(Crops()):
            x = x.to("cuda")  # moved
    """,
    "resized in the step": """
        def step():
            images = load()
            images = F.interpolate(images, size=size)  # made
            images = images * 2
            images = images.to("cuda")  # moved
    """,
    "made by a function of the file": """
        def batch(n):
            return torch.randn(8, n)  # made

        def step():
            x = batch(next(lengths))
            model(x.to("cuda"))  # moved
    """,
}
NOTHING = {
    "made where it is moved": """
        def step():
            x = torch.randn(8, n).to("cuda")  # moved
    """,
    "nothing is moved": """
        def collate(batch):
            return pad_sequence(batch)

        loader = DataLoader(data, collate_fn=collate)
        x = F.interpolate(x, size)  # moved
    """,
    "two collate functions": """
        def collate(batch):
            return pad_sequence(batch)

        def other(batch):
            return pad_sequence(batch)

        loaders = DataLoader(data, collate_fn=collate), DataLoader(data, collate_fn=other)
        for x in chain(*loaders):
            x = x.to("cuda")  # moved
    """,
    "fixed sizes alone": """
        def collate(batch):
            x = torch.zeros(8, 100)
            return x[:8, :100]

        for x in DataLoader(data, collate_fn=collate):
            x = x.to("cuda")  # moved
    """,
    "no such source": "x.to('cuda')  # moved",
}


def asked(text):
    lines = textwrap.dedent(text).strip().split("\n")
    at = {
        mark: n
        for n, line in enumerate(lines, 1)
        for mark in ("made", "moved")
        if f"# {mark}" in line
    }
    source = Source({"train.py": "\n".join(lines)})
    return size_made_at(source, Site("train.py", at["moved"])), at


@pytest.mark.parametrize("name", list(CASES))
def test_the_line_that_makes_the_size(name):
    found, at = asked(CASES[name])
    assert found is not None
    assert (found.file, found.line) == ("train.py", at["made"])


@pytest.mark.parametrize("name", list(NOTHING))
def test_no_line_makes_the_size(name):
    assert asked(NOTHING[name])[0] is None
