import random
from collections import defaultdict

import numpy as np


def synth_clicks(n_users, n_items, per_user, seed):
    """Users and items live in one of a few taste groups."""
    rs = np.random.RandomState(seed)
    user_group = rs.randint(0, 5, n_users)
    item_group = rs.randint(0, 5, n_items)
    pairs = []
    for u in range(n_users):
        affinity = np.where(item_group == user_group[u], 6.0, 1.0)
        items = rs.choice(n_items, size=per_user, replace=False, p=affinity / affinity.sum())
        pairs.extend((u, int(i)) for i in items)
    return pairs


class ClickLog:
    def __init__(self, pairs, n_users, n_items):
        self.pairs = np.asarray(pairs)
        self.n_users = n_users
        self.n_items = n_items
        self._seen = defaultdict(set)
        for u, i in pairs:
            self._seen[u].add(i)

    def __len__(self):
        return len(self.pairs)

    def negative(self, user):
        """An item that the user has not clicked."""
        seen = self._seen[user]
        while True:
            j = random.randrange(self.n_items)
            if j not in seen:
                return j

    def batches(self, size):
        perm = np.random.permutation(len(self.pairs))
        for lo in range(0, len(perm) - size + 1, size):
            rows = self.pairs[perm[lo:lo + size]]
            neg = [self.negative(int(u)) for u in rows[:, 0]]
            yield rows[:, 0], rows[:, 1], np.asarray(neg)
