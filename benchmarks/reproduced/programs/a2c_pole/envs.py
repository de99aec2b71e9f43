import math

import numpy as np


class CartPole:
    """Plain Euler cart-pole, same constants as the classic control task."""

    def __init__(self):
        self.np_random = None
        self.state = None

    def reset(self, seed=None):
        if seed is not None or self.np_random is None:
            self.np_random = np.random.default_rng(seed)
        self.state = self.np_random.uniform(-0.05, 0.05, size=4)
        return self.state.astype(np.float32)

    def step(self, action):
        x, xd, th, thd = self.state
        force = 10.0 if action == 1 else -10.0
        c, s = math.cos(th), math.sin(th)
        tmp = (force + 0.05 * thd ** 2 * s) / 1.1
        tha = (9.8 * s - c * tmp) / (0.5 * (4.0 / 3.0 - 0.1 * c * c / 1.1))
        xa = tmp - 0.05 * tha * c / 1.1
        self.state = np.array([x + 0.02 * xd, xd + 0.02 * xa, th + 0.02 * thd, thd + 0.02 * tha])
        fail = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.2095
        return self.state.astype(np.float32), 1.0, bool(fail)


class Wrapper:
    def __init__(self, env):
        self.env = env

    def reset(self, seed=None):
        return self.env.reset(seed=seed)

    def step(self, action):
        return self.env.step(action)


class TimeLimit(Wrapper):
    def __init__(self, env, limit):
        super().__init__(env)
        self.limit, self.t = limit, 0

    def reset(self, seed=None):
        self.t = 0
        return self.env.reset()

    def step(self, action):
        obs, r, done = self.env.step(action)
        self.t += 1
        return obs, r, done or self.t >= self.limit


class ScaleReward(Wrapper):
    def __init__(self, env, k):
        super().__init__(env)
        self.k = k

    def step(self, action):
        obs, r, done = self.env.step(action)
        return obs, r * self.k, done


class SyncVec:
    def __init__(self, fns):
        self.envs = [f() for f in fns]
        self.n = len(self.envs)

    def reset(self, seed):
        return np.stack([e.reset(seed=seed + i) for i, e in enumerate(self.envs)])

    def step(self, actions):
        obs, rew, done = [], [], []
        for e, a in zip(self.envs, actions):
            o, r, d = e.step(int(a))
            if d:
                o = e.reset()
            obs.append(o), rew.append(r), done.append(d)
        return np.stack(obs), np.asarray(rew, np.float32), np.asarray(done, np.float32)
