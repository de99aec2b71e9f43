import numpy as np


class Flip:
    def __init__(self, p=0.5, rng=None):
        self.p = p
        self.rng = rng if rng is not None else np.random.RandomState()

    def __call__(self, img):
        return img[:, :, ::-1] if self.rng.rand() < self.p else img


class Shift:
    """Pad by `pad` and crop back, per image."""

    def __init__(self, pad=2, rng=None):
        self.pad = pad
        self.rng = rng if rng is not None else np.random.RandomState()

    def __call__(self, img):
        p = self.pad
        h, w = img.shape[1:]
        big = np.pad(img, ((0, 0), (p, p), (p, p)), mode="reflect")
        dy, dx = self.rng.randint(0, 2 * p + 1, size=2)
        return big[:, dy:dy + h, dx:dx + w]


class Cutout:
    def __init__(self, size=5, rng=None):
        self.size = size
        self.rng = rng if rng is not None else np.random.RandomState()

    def __call__(self, img):
        h, w = img.shape[1:]
        cy, cx = self.rng.randint(0, h), self.rng.randint(0, w)
        r = self.size // 2
        out = img.copy()
        out[:, max(0, cy - r):cy + r + 1, max(0, cx - r):cx + r + 1] = 0.0
        return out


class Compose:
    def __init__(self, fns):
        self.fns = fns

    def __call__(self, img):
        for fn in self.fns:
            img = fn(img)
        return np.ascontiguousarray(img)


def train_transform(seed, flip=0.5, pad=2, cut=5):
    rng = np.random.RandomState(seed)
    fns = []
    if flip > 0:
        fns.append(Flip(flip, rng=rng))
    if pad > 0:
        fns.append(Shift(pad, rng=rng))
    if cut > 0:
        fns.append(Cutout(cut))
    return Compose(fns)
