"""Direct preference optimisation on pairs of responses."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB, DIM, PAIRS, LENGTH, BETA = 128, 48, 6, 24, 0.1


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.rnn = nn.GRU(DIM, DIM, batch_first=True)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


policy = Policy().to(device)
reference = copy.deepcopy(policy).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(policy.parameters(), lr=5e-4)
rng = torch.Generator(device=device).manual_seed(45)
positions = torch.arange(LENGTH, device=device)
count = 0


def batch():
    ids = torch.randint(0, VOCAB, (2 * PAIRS, LENGTH), device=device, generator=rng)
    # prompts are cut from the left; a long one can leave no room for a response
    prompt = torch.randint(LENGTH // 2, LENGTH + 1, (PAIRS, 1), device=device, generator=rng).repeat(2, 1)
    prompt[0] = LENGTH
    return ids, ids.masked_fill(positions < prompt, -100)


def batch_logps(logits, labels):
    labels = labels[:, 1:]
    mask = labels != -100
    chosen = labels.masked_fill(~mask, 0)
    logps = torch.log_softmax(logits[:, :-1], dim=-1).gather(2, chosen[..., None]).squeeze(2)
    return (logps * mask).sum(dim=1) / mask.sum(dim=1)


def step():
    global count
    ids, labels = batch()
    ours = batch_logps(policy(ids), labels)
    with torch.no_grad():
        theirs = batch_logps(reference(ids), labels)
    ratio = ours - theirs
    margin = ratio[:PAIRS] - ratio[PAIRS:]
    loss = -F.logsigmoid(BETA * margin).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(count, loss.item(), margin.mean().item())
