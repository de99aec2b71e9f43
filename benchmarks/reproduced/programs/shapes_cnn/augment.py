import numpy as np


class Compose:
    def __init__(self, *ops):
        self.ops = ops

    def __call__(self, img):
        for op in self.ops:
            img = op(img)
        return np.ascontiguousarray(img)


class RandomShift:
    """Pad by `pad` pixels, then crop back to the old size."""

    def __init__(self, pad=2):
        self.pad = pad

    def __call__(self, img):
        h, w = img.shape
        big = np.pad(img, self.pad)
        top, left = np.random.randint(0, 2 * self.pad + 1, size=2)
        return big[top:top + h, left:left + w]


class RandomFlip:
    def __init__(self, p=0.5):
        self.p = p

    def __call__(self, img):
        return img[:, ::-1] if np.random.rand() < self.p else img


class Contrast:
    def __init__(self, lo=0.8, hi=1.2):
        self.lo, self.hi = lo, hi

    def __call__(self, img):
        return img * np.float32(np.random.uniform(self.lo, self.hi))
