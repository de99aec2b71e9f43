"""DQN on stacked grey frames of a falling-ball game."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(15)
SIDE, STACK, ACTIONS, BATCH, GAMMA = 36, 4, 3, 32, 0.99


class DQN(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(STACK, 16, 8, stride=4), nn.ReLU(inplace=True),
            nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(inplace=True),
            nn.Flatten(),
            nn.Linear(32 * 3 * 3, 128), nn.ReLU(inplace=True),
            nn.Linear(128, ACTIONS),
        )

    def forward(self, obs):
        return self.net(torch.as_tensor(obs, dtype=torch.float32))


class FallingBall:
    """Frames of bytes; the paddle must stand below the ball when it lands."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.ball, self.row, self.paddle = self.rng.integers(2, SIDE - 2), 0, SIDE // 2
        self.frames = np.repeat(self.draw()[None], STACK, axis=0)
        return self.frames

    def draw(self):
        frame = np.full((SIDE, SIDE), 60, dtype=np.uint8)
        frame[self.row : self.row + 2, self.ball - 1 : self.ball + 1] = 236
        frame[-2:, max(self.paddle - 3, 0) : self.paddle + 3] = 144
        return frame

    def step(self, action):
        self.paddle = int(np.clip(self.paddle + 3 * (action - 1), 3, SIDE - 3))
        self.row += 3
        self.frames = np.concatenate([self.frames[1:], self.draw()[None]])
        done = self.row >= SIDE - 4
        reward = float(abs(self.ball - self.paddle) < 4) if done else 0.0
        return self.frames, reward, done


class ReplayBuffer:
    def __init__(self, size):
        self.size, self.items = size, []

    def add(self, *transition):
        self.items = [*self.items[-self.size + 1 :], transition]

    def sample(self, rng):
        chosen = [self.items[i] for i in rng.integers(0, len(self.items), BATCH)]
        return [np.stack(each) for each in zip(*chosen)]


class DQNPolicy:
    def __init__(self):
        self.model, self.target = DQN(), DQN()
        self.target.load_state_dict(self.model.state_dict())
        self.optim = torch.optim.Adam(self.model.parameters(), lr=1e-4)
        self.updates = 0

    @torch.no_grad()
    def act(self, obs, rng, eps=0.2):
        return int(rng.integers(ACTIONS)) if rng.random() < eps else int(self.model(obs[None]).argmax())

    def learn(self, obs, action, reward, obs_next, done):
        with torch.no_grad():
            best = self.target(obs_next).max(1).values
            returns = torch.as_tensor(reward, dtype=torch.float32) + GAMMA * best * ~torch.as_tensor(done)
        q = self.model(obs).gather(1, torch.as_tensor(action)[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, returns)
        self.optim.zero_grad()
        loss.backward()
        self.optim.step()
        self.updates += 1
        if self.updates % 50 == 0:
            self.target.load_state_dict(self.model.state_dict())


env, buffer, policy, rng = FallingBall(0), ReplayBuffer(1000), DQNPolicy(), np.random.default_rng(0)
state = env.reset()


def collect(count):
    global state
    for _ in range(count):
        action = policy.act(state, rng)
        following, reward, done = env.step(action)
        buffer.add(state, action, reward, following, done)
        state = env.reset() if done else following


collect(200)


def step():
    collect(4)
    policy.learn(*buffer.sample(rng))
