import numpy as np


class EpisodeSampler:
    """Yields index lists with `shots` support and `queries` query records per rhythm."""

    def __init__(self, names, shots, queries, episodes, seed=0):
        self.shots, self.queries, self.episodes = shots, queries, episodes
        self.rng = np.random.RandomState(seed)
        names = np.asarray(names)
        self.by_class = {}
        for rhythm in frozenset(names.tolist()):
            pool = np.flatnonzero(names == rhythm)
            if len(pool) >= shots + queries:
                self.by_class[rhythm] = pool

    def __len__(self):
        return self.episodes

    def __iter__(self):
        for _ in range(self.episodes):
            support, query, tags = [], [], []
            for rhythm, pool in self.by_class.items():
                pick = self.rng.choice(pool, self.shots + self.queries, replace=False)
                support.append(pick[:self.shots])
                query.append(pick[self.shots:])
                tags.append(rhythm)
            yield np.stack(support), np.stack(query), tags
