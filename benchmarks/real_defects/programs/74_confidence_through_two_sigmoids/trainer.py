"""A one-scale, anchor-based detector on drawn rectangles."""
import torch
import torch.nn as nn

torch.manual_seed(1)
IMAGE, STRIDE, CLASSES = 64, 8, 3
GRID = IMAGE // STRIDE
ANCHORS = torch.tensor([[10.0, 10.0], [20.0, 20.0]])


class Head(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, len(ANCHORS) * (5 + CLASSES), 1)

    def forward(self, features):
        p = self.conv(features)
        p = p.view(len(p), len(ANCHORS), 5 + CLASSES, GRID, GRID).permute(0, 3, 4, 1, 2)
        return self.decode(p)

    def decode(self, p):
        rows, columns = torch.meshgrid(torch.arange(GRID), torch.arange(GRID), indexing="ij")
        cells = torch.stack([columns, rows], dim=-1)[:, :, None].float()
        xy = (p[..., :2].sigmoid() + cells) * STRIDE
        wh = p[..., 2:4].clamp(max=4).exp() * ANCHORS
        conf = p[..., 4:5].sigmoid()
        prob = p[..., 5:].sigmoid()
        return torch.cat([xy, wh, conf, prob], dim=-1)


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        layers, inputs = [], 3
        for outputs in (16, 32, 48):
            layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.BatchNorm2d(outputs), nn.LeakyReLU(0.1)]
            inputs = outputs
        self.backbone = nn.Sequential(*layers)
        self.head = Head(inputs)

    def forward(self, images):
        return self.head(self.backbone(images))


class DetectionLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.bce = nn.BCEWithLogitsLoss(reduction="none")
        self.l1 = nn.SmoothL1Loss(reduction="none")

    def forward(self, p, boxes, objectness, classes):
        box = objectness * self.l1(p[..., :4] / IMAGE, boxes / IMAGE)
        conf = self.bce(p[..., 4:5], objectness)
        cls = objectness * self.bce(p[..., 5:], classes)
        return (5 * box.sum() + conf.sum() + cls.sum()) / len(p)


def draw(count):
    """Images with one rectangle each, whose colour is its class, and the dense targets."""
    images = 0.1 * torch.randn(count, 3, IMAGE, IMAGE)
    boxes = torch.zeros(count, GRID, GRID, len(ANCHORS), 4)
    objectness = torch.zeros(count, GRID, GRID, len(ANCHORS), 1)
    classes = torch.zeros(count, GRID, GRID, len(ANCHORS), CLASSES)
    for i in range(count):
        side = int(torch.randint(8, 24, ()))
        x, y = (int(v) for v in torch.randint(0, IMAGE - side, (2,)))
        kind = int(torch.randint(0, CLASSES, ()))
        images[i, kind, y : y + side, x : x + side] += 1
        cx, cy, anchor = x + side / 2, y + side / 2, int(side > 15)
        where = (i, int(cy // STRIDE), int(cx // STRIDE), anchor)
        boxes[where] = torch.tensor([cx, cy, side, side])
        objectness[where] = 1
        classes[(*where, kind)] = 1
    return images, boxes, objectness, classes


model, criterion = Detector(), DetectionLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=5e-3, momentum=0.9)


def step():
    images, *targets = draw(16)
    loss = criterion(model(images), *targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
