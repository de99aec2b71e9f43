"""Steps of timm's DINOv2 giant (1.1 billion parameters) on 32 images of 224 x 224: all in bfloat16,
each block checkpointed, fused AdamW.
"""

from __future__ import annotations

import timm
import torch
from measure import Peaks
from torch import nn

BATCH, CLASSES = 32, 45


def main() -> None:
    model = timm.create_model("vit_giant_patch14_dinov2", num_classes=CLASSES, img_size=224)
    model.set_grad_checkpointing()
    model.bfloat16().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0, fused=True)
    peaks = Peaks()
    model.train()
    for _ in range(3):
        images = torch.zeros(BATCH, 3, 224, 224, dtype=torch.bfloat16)
        classes = torch.zeros(BATCH, dtype=torch.long)
        loss = nn.functional.cross_entropy(model(images.cuda()), classes.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    peaks.tell(parameters=sum(p.numel() for p in model.parameters()))


if __name__ == "__main__":
    main()
