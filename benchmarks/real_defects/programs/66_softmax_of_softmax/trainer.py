"""Logistic regression on flattened images, with L2 on the weights."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
CLASSES, PIXELS = 10, 64
prototypes = torch.randn(CLASSES, PIXELS)


class LogisticRegression(nn.Module):
    def __init__(self, inputs, classes, l2=1e-4):
        super().__init__()
        self.linear = nn.Linear(inputs, classes)
        self.l2 = l2

    def forward(self, x):
        scores = self.linear(x)
        return F.softmax(scores, dim=1)

    def training_step(self, batch):
        x, y = batch
        y_hat = self(x.flatten(1))
        loss = F.cross_entropy(y_hat, y, reduction="sum")
        return (loss + self.l2 * self.linear.weight.pow(2).sum()) / x.size(0)


model = LogisticRegression(PIXELS, CLASSES)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)


def step():
    y = torch.randint(0, CLASSES, (64,))
    x = (prototypes[y] + torch.randn(64, PIXELS)).view(64, 1, 8, 8)
    optimizer.zero_grad()
    model.training_step((x, y)).backward()
    optimizer.step()
