from collections import defaultdict
from random import Random


class TripletMiner:
    """Draws (anchor, positive, negative) rows.

    Keeps a generator of its own so that evaluation code which uses the
    global one cannot shift the triplet sequence.
    """

    def __init__(self, identities, hard_fraction=0.0, rnd=None):
        self.groups = defaultdict(list)
        for row, who in enumerate(identities.tolist()):
            self.groups[who].append(row)
        self.people = sorted(self.groups)
        self.hard_fraction = hard_fraction
        self._rnd = rnd or Random()

    def _triplet(self):
        who = self._rnd.choice(self.people)
        a, p = self._rnd.sample(self.groups[who], 2)
        other = self._rnd.choice(self.people)
        while other == who:
            other = self._rnd.choice(self.people)
        return a, p, self._rnd.choice(self.groups[other])

    def draw(self, n):
        cols = zip(*(self._triplet() for _ in range(n)))
        return [list(c) for c in cols]
