import numpy as np

RHYTHMS = ["normal", "afib", "flutter", "brady", "tachy", "pvc"]
RATE = {"normal": 1.2, "afib": 1.6, "flutter": 2.4, "brady": 0.8, "tachy": 2.1, "pvc": 1.2}


def beat(phase, width):
    return np.exp(-0.5 * ((phase - 0.5) / width) ** 2) - 0.25 * np.exp(-0.5 * ((phase - 0.62) / (2 * width)) ** 2)


def record(rhythm, rng, n=160, fs=40.0):
    t = np.arange(n) / fs
    rate = RATE[rhythm] * (1 + 0.06 * rng.normal())
    jitter = 0.35 if rhythm == "afib" else 0.02
    phase = (rate * t + np.cumsum(rng.normal(0, jitter, n)) / fs + rng.random()) % 1.0
    x = beat(phase, 0.04)
    if rhythm == "flutter":
        x = x + 0.3 * np.sin(2 * np.pi * 5 * t)
    if rhythm == "pvc":
        k = rng.integers(20, n - 20)
        x[k - 8:k + 8] -= 1.2 * np.hanning(16)
    return (x + 0.15 * rng.normal(size=n)).astype(np.float32)


def load(n, seed):
    rng = np.random.default_rng(seed)
    names = [RHYTHMS[i] for i in rng.integers(0, len(RHYTHMS), size=n)]
    return np.stack([record(r, rng) for r in names])[:, None], names
