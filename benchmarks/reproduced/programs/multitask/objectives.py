import torch.nn.functional as F

# head name -> (kind, output size)
HEADS = {
    "rating": ("reg", 1),
    "sentiment": ("cls", 3),
    "topic": ("cls", 8),
    "length": ("reg", 1),
    "author_sex": ("cls", 2),
    "region": ("cls", 5),
    "urgency": ("reg", 1),
}

GROUPS = {
    "quality": ["rating", "sentiment", "urgency"],
    "content": ["topic", "length", "sentiment"],
    "meta": ["author_sex", "region", "length"],
}


def head_loss(name, pred, target):
    kind, _ = HEADS[name]
    if kind == "reg":
        return F.mse_loss(pred.squeeze(-1), target)
    return F.cross_entropy(pred, target)


class WeightedSum:
    """Total objective; heads that belong to several groups count once."""

    def __init__(self, groups, weights):
        names = set(n for g in groups for n in GROUPS[g])
        if len(weights) != len(names):
            raise ValueError(f"{len(names)} objectives but {len(weights)} weights")
        self.weights = dict(zip(names, weights))

    def __call__(self, outputs, targets):
        total, parts = 0.0, {}
        for name, w in self.weights.items():
            parts[name] = head_loss(name, outputs[name], targets[name])
            total = total + w * parts[name]
        return total, {k: v.item() for k, v in parts.items()}
