"""Multiple-choice question answering over candidate embeddings."""
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, CANDIDATES, DIM = 16, 20, 64


class GraphLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.other = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)

    def forward(self, nodes, adjacency):
        degree = adjacency.sum(dim=-1, keepdim=True).clamp(min=1)
        return torch.relu(self.own(nodes) + self.other(adjacency @ nodes / degree))


class Answerer(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([GraphLayer() for _ in range(2)])
        self.query = nn.Linear(DIM, DIM)

    def forward(self, nodes, adjacency, query):
        for layer in self.layers:
            nodes = layer(nodes, adjacency)
        scores = (nodes @ self.query(query)[:, :, None]).squeeze(-1)
        scores = scores - scores.max(dim=1, keepdim=True).values
        weights = scores.exp()
        probabilities = weights / weights.sum(dim=1, keepdim=True)
        return probabilities.log()


model = Answerer().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(44)
rows = torch.arange(BATCH, device=device)
total = torch.zeros((), device=device)
count = 0


def questions():
    nodes = 12.0 * torch.randn(BATCH, CANDIDATES, DIM, device=device, generator=rng)
    adjacency = (torch.rand(BATCH, CANDIDATES, CANDIDATES, device=device, generator=rng) > 0.7).float()
    answer = torch.randint(0, CANDIDATES, (BATCH,), device=device, generator=rng)
    query = nodes[rows, answer] + torch.randn(BATCH, DIM, device=device, generator=rng)
    return nodes, adjacency, query, answer


def step():
    global count
    nodes, adjacency, query, answer = questions()
    log_probabilities = model(nodes, adjacency, query)
    loss = -log_probabilities[rows, answer].mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    total.add_(loss.detach())
    count += 1
    if count % 50 == 0:
        print(count, total.item() / 50)
        total.zero_()
