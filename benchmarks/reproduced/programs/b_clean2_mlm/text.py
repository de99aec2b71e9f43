import random

SPECIAL = ["<pad>", "<mask>", "<unk>"]
SUBJ = "dog cat bird man woman child robot farmer".split()
VERB = "sees likes chases finds paints follows".split()
ADJ = "red old tiny loud happy wet".split()
PLACE = "park house river market field".split()
STOP = {"the", "in", "a", "near"}


def corpus(n, rng):
    out = []
    for _ in range(n):
        out.append(["the", rng.choice(ADJ), rng.choice(SUBJ), rng.choice(VERB), "a", rng.choice(ADJ),
                    rng.choice(SUBJ), rng.choice(["in", "near"]), "the", rng.choice(PLACE)])
    return out


class Vocab:
    def __init__(self, sentences):
        seen = set()
        for s in sentences:
            seen |= set(s)
        self.itos = SPECIAL + sorted(seen)
        self.stoi = {w: i for i, w in enumerate(self.itos)}
        self.maskable = frozenset(self.stoi[w] for w in seen - STOP)
        self._cache = {}

    def __len__(self):
        return len(self.itos)

    def encode(self, sent):
        key = hash(" ".join(sent))
        hit = self._cache.get(key)
        if hit is None or hit[0] != sent:
            hit = (sent, [self.stoi.get(w, 2) for w in sent])
            self._cache[key] = hit
        return hit[1]


def word_counts(sentences):
    counts = {}
    for w in set(w for s in sentences for w in s):
        counts[w] = sum(s.count(w) for s in sentences)
    return counts


def splits(n, val_share, seed):
    ids = list(range(n))
    random.Random(seed).shuffle(ids)
    k = int(n * val_share)
    return set(ids[k:]), set(ids[:k])
