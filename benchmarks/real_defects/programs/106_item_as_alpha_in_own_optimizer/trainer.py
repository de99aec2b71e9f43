"""Fine-tuning with an own optimizer that takes the part of a gradient along its weight out first."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

VOCAB, DIM, LENGTH, BATCH, LAYERS = 256, 64, 24, 4, 3


class OrthogonalAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3):
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(p), torch.zeros_like(p)
                w, g = p.view(-1), p.grad.view(-1)
                along = torch.dot(w, g) / torch.dot(w, w).add_(1e-30)
                g = g.sub(w, alpha=along.item()).view_as(p)
                state["mean"].lerp_(g, 0.1)
                state["square"].mul_(0.99).addcmul_(g, g, value=0.01)
                p.addcdiv_(state["mean"], state["square"].sqrt().add_(1e-8), value=-group["lr"])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 4, 4 * DIM, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        return self.head(self.layers(self.embed(ids)))


model = Model().to(device)
optimizer = OrthogonalAdam(model.parameters())
rng = torch.Generator(device=device).manual_seed(106)


def step():
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH), device=device, generator=rng)
    loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
