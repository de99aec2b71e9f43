"""Group-relative policy optimisation of a small mixture-of-experts language model."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB, DIM, EXPERTS, GROUP, PROMPTS, LENGTH = 128, 48, 4, 4, 2, 20


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        self.w1 = nn.Parameter(0.1 * torch.randn(EXPERTS, DIM, 2 * DIM))
        self.w2 = nn.Parameter(0.1 * torch.randn(EXPERTS, 2 * DIM, DIM))

    def forward(self, x):
        gates = self.gate(x).softmax(dim=-1)
        hidden = F.silu(torch.einsum("btd,edh->bteh", x, self.w1))
        out = torch.einsum("bteh,ehd,bte->btd", hidden, self.w2, gates)
        load = gates.mean(dim=(0, 1))
        return x + out, EXPERTS * load.pow(2).sum()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.rnn = nn.GRU(DIM, DIM, batch_first=True)
        self.moe = MoE()
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        hidden, aux_loss = self.moe(self.rnn(self.embed(ids))[0])
        return self.head(hidden), aux_loss


model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
rng = torch.Generator(device=device).manual_seed(55)
updates = 0


def token_logps(logits, ids):
    return F.log_softmax(logits[:, :-1], dim=-1).gather(2, ids[:, 1:, None]).squeeze(2)


def completions():
    ids = torch.randint(0, VOCAB, (PROMPTS * GROUP, LENGTH), device=device, generator=rng)
    rewards = (ids < VOCAB // 2).float().mean(dim=1).view(PROMPTS, GROUP)
    spread = rewards.std(dim=1, keepdim=True)
    return ids, ((rewards - rewards.mean(dim=1, keepdim=True)) / (spread + 1e-4)).view(-1, 1)


def step():
    global updates
    ids, advantages = completions()
    logps = token_logps(model(ids)[0], ids)
    _, aux_loss = model(ids)
    ratio = torch.exp(logps - logps.detach())
    policy_loss = -(ratio * advantages).mean()
    loss = policy_loss + 0.01 * aux_loss
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    updates += 1
    if updates % 50 == 0:
        print(updates, loss.item(), aux_loss.item())
