"""The probe of tensors outside optimizers and modules; it keeps none alive."""

from auditor.rules.graph.probes.leaves_outside_optimizer import LeavesOutsideOptimizerProbe

from tests.capture.drive import Drive, load, watched

SOURCE = """import torch
model = torch.nn.Linear(2, 1)
class Holder:
    def __init__(self):
        self.tables = [torch.rand(2, requires_grad=True)]  # made
holder = Holder()
moved = torch.rand(2, requires_grad=True)
trained = torch.rand(2, requires_grad=True)
optimizer = torch.optim.SGD([*model.parameters(), trained], lr=0.1)
batches = []

def step():
    optimizer.zero_grad()
    x = torch.ones(1, 2, requires_grad=True)
    batches.append(x)
    del batches[:-1]
    (model(x * holder.tables[0] * moved * trained)).sum().backward()  # walks
    optimizer.step()
    moved.data.mul_(0.5)
"""


def test_a_tensor_that_became_another_kind_has_changed(tmp_path):
    user = load(tmp_path, SOURCE)
    with Drive(tmp_path, LeavesOutsideOptimizerProbe) as drive, drive.running("loud", user.step):
        for _ in range(3):
            drive.step(user.step)
        user.moved.data = user.moved.data.double()
    changed = {row["name"]: row["changed"] for row in drive.rows("strays")}
    assert changed["moved"] is True
    assert changed["self.tables[*]"] is False


def test_gradients_that_somebody_looks_after_are_told_apart(tmp_path):
    user, drive = watched(
        tmp_path,
        """
        import torch
        cleared, asked, left = (torch.ones(2, requires_grad=True) for _ in range(3))

        def step():
            (cleared * asked * left).sum().backward()
            cleared.grad.zero_()
            torch.autograd.grad((asked * 2).sum(), asked)
        """,
        LeavesOutsideOptimizerProbe,
        steps=4,
    )
    rows = {row["name"]: (row["touched"], row["asked"]) for row in drive.rows("strays")}
    assert rows == {"cleared": (3, False), "asked": (0, True), "left": (0, False)}
