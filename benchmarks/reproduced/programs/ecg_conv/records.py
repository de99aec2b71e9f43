import hashlib
import uuid
from dataclasses import dataclass

import numpy as np


@dataclass
class Record:
    uid: str
    signal: np.ndarray
    label: int


def beat(t, centre, width, height):
    return height * np.exp(-0.5 * ((t - centre) / width) ** 2)


def simulate(n, length, rng):
    """Single-lead strips; label 1 has a widened QRS and an irregular rhythm."""
    t = np.arange(length)
    out = []
    for i in range(n):
        label = int(rng.random() < 0.5)
        sig = 0.1 * np.sin(2 * np.pi * t / length * rng.uniform(0.5, 2))
        pos = rng.uniform(5, 20)
        while pos < length:
            sig = sig + beat(t, pos, 1.5 + 1.2 * label, 1.0) + beat(t, pos + 12, 4.0, 0.3)
            pos += 32 + rng.normal(scale=2 + 5 * label)
        sig = sig + 0.15 * rng.standard_normal(length)
        out.append(Record(uuid.uuid4().hex, sig.astype(np.float32), label))
    return out


def in_validation(rec, percent=20):
    """Stable under re-ordering and appending of records."""
    digest = hashlib.md5(rec.uid.encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < percent


def split(records):
    train = [r for r in records if not in_validation(r)]
    val = [r for r in records if in_validation(r)]
    return train, val
