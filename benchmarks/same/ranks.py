"""Two ranks that read their loss on each step and average gradients after each micro-batch."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for _ in range(60):
    for micro in range(2):
        loss = model(torch.randn(8, 64) + micro).square().mean() / 2
        loss.backward()
    if loss.item() > 1e6:
        break
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
