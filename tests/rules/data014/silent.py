import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from tests.rules.programs import endless, on_stream


class _Rows(Dataset):
    def __init__(self):
        self.rows = torch.randn(64, 8)
        self.kept = torch.zeros(64, 8)
        self.seen = np.arange(64 * 2).reshape(64, 2)

    def __len__(self):
        return len(self.rows)


def _stepping(kind):
    return on_stream(endless(DataLoader(kind(), batch_size=4, shuffle=True)))


def copied_before_it_is_changed():
    class Rows(_Rows):
        def __getitem__(self, index):
            x = self.rows[index].clone()
            return x.add_(torch.randn(8))

    return _stepping(Rows)


def cache_that_fills():
    class Rows(_Rows):
        def __getitem__(self, index):
            kept = self.kept[index]
            if not kept.any():
                kept.copy_(self.rows[index] * 2)
            return kept

    return _stepping(Rows)


def table_of_what_was_drawn():
    class Rows(_Rows):
        def __getitem__(self, index):
            self.seen[index] += 1
            first = self.seen[index]
            return self.rows[index] * first[0]

    return _stepping(Rows)


def scaled_in_place_once():
    class Rows(_Rows):
        def __init__(self):
            super().__init__()
            self.rows = self.rows[:6]

        def __getitem__(self, index):
            x = self.rows[index]
            x /= x.norm()
            return x

    return _stepping(Rows)


def brought_to_one_form_again():
    class Rows(_Rows):
        def __init__(self):
            super().__init__()
            self.rows = torch.nn.functional.normalize(self.rows) * 1.0000001

        def __getitem__(self, index):
            x = self.rows[index]
            x /= x.norm()
            return x

    return _stepping(Rows)


def filled_between_the_batches():
    class Rows(_Rows):
        def __getitem__(self, index):
            return self.rows[index]

    rows = Rows()

    def stream():
        for batch in endless(DataLoader(rows, batch_size=4, shuffle=True)):
            rows.rows.copy_(torch.randn(64, 8))
            yield batch

    return on_stream(stream())


def asked_for_by_name():
    class Rows(_Rows):
        def __getitem__(self, name):
            return self.rows[int(name[1:])]

    names = [f"n{number}" for number in range(64)]
    return on_stream(endless(DataLoader(Rows(), batch_size=4, sampler=names)))
