"""Prompt tuning of a frozen transformer."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB, DIM, PROMPT, LENGTH, BATCH, LABELS = 256, 64, 8, 16, 8, 4


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 4, 4 * DIM, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.verbalizer = nn.Linear(DIM, LABELS)

    def forward(self, inputs_embeds):
        return self.verbalizer(self.layers(inputs_embeds)[:, 0])


backbone = Backbone().to(device).eval()
prompt = nn.Parameter(0.02 * torch.randn(PROMPT, DIM, device=device))
optimizer = torch.optim.AdamW([prompt], lr=0.05)
rng = torch.Generator(device=device).manual_seed(49)
running = torch.zeros((), device=device)
count = 0


def examples():
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH), device=device, generator=rng)
    return ids, ids[:, 0] % LABELS


def with_prompt(ids):
    with torch.no_grad():
        tokens = backbone.embed(ids)
    return torch.cat([prompt.expand(ids.size(0), PROMPT, DIM), tokens], dim=1)


def step():
    global count
    ids, labels = examples()
    logits = backbone(with_prompt(ids))
    loss = F.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running.add_(loss.detach())
    count += 1
    if count % 50 == 0:
        print(f"{count}: {running.item() / 50:.4f}")
        running.zero_()
