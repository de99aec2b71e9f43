"""A compiled step that breaks its graph at a print."""

import torch


def forward(model, x):
    out = model(x)
    print(out.shape)
    return out.sum()


model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
compiled = torch.compile(forward, backend="aot_eager")
for _ in range(60):
    loss = compiled(model, torch.randn(16, 32))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
