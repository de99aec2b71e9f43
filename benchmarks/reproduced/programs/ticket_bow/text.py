import re

TOKEN = re.compile(r"[a-z']+")


def tokenize(line):
    return TOKEN.findall(line.lower())


class Vocab:
    """Word <-> id. Ids 0 and 1 are padding and unknown."""

    def __init__(self, words):
        self.itos = ["<pad>", "<unk>"] + list(words)
        self.stoi = {w: i for i, w in enumerate(self.itos)}

    @classmethod
    def from_docs(cls, docs, min_count=2):
        counts = {}
        for d in docs:
            for w in tokenize(d):
                counts[w] = counts.get(w, 0) + 1
        frequent = {w for w, c in counts.items() if c >= min_count}
        return cls(frequent)

    def encode(self, doc):
        return [self.stoi.get(w, 1) for w in tokenize(doc)]

    def __len__(self):
        return len(self.itos)
