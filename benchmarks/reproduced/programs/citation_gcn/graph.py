import random


class Paper:
    """A node of the citation graph."""

    def __init__(self, key, topic):
        self.key = key
        self.topic = topic
        self.words = []
        self.cites = []

    def link(self, other):
        if other is not self:
            self.cites.append(other)
            other.cites.append(self)

    def __repr__(self):
        return f"Paper({self.key}, topic={self.topic})"


def grow(n, n_topics, n_words, seed):
    """Preferential growth with topic homophily."""
    rnd = random.Random(seed)
    papers = []
    for k in range(n):
        p = Paper(f"P{k:04d}", rnd.randrange(n_topics))
        lo = p.topic * (n_words // n_topics)
        p.words = [lo + rnd.randrange(n_words // n_topics) if rnd.random() < 0.35 else rnd.randrange(n_words)
                   for _ in range(8)]
        pool = [q for q in papers if q.topic == p.topic]
        for _ in range(3):
            if papers:
                p.link(rnd.choice(pool if pool and rnd.random() < 0.8 else papers))
        papers.append(p)
    return papers


def component(start):
    """All papers that can be reached from `start`."""
    seen, frontier = {start}, [start]
    while frontier:
        for q in frontier.pop().cites:
            if q not in seen:
                seen.add(q)
                frontier.append(q)
    return seen


def number(nodes):
    return {p: i for i, p in enumerate(nodes)}
