"""Keeps what each step computed on the GPU until nothing more fits."""

import torch

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(512, 512).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
kept = []
for _ in range(60):
    out = model(torch.randn(4096, 512, device=device))
    kept.append(out)
    loss = out.square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
