"""A rollout: one frame of several codebooks is decoded a step, and the policy is updated every 16 frames."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

ROWS, BOOKS, CODES, DIM, HORIZON = 8, 4, 64, 96, 16


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(CODES, DIM)
        self.body = nn.GRUCell(DIM, DIM)
        self.head = nn.Linear(DIM, BOOKS * CODES)

    def forward(self, codes, state):
        state = self.body(self.embed(codes).mean(1), state)
        return self.head(state).view(ROWS, BOOKS, CODES), state


model = Decoder().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
rng = torch.Generator(device=device).manual_seed(104)
codes = torch.zeros(ROWS, BOOKS, dtype=torch.long, device=device)
state = torch.zeros(ROWS, DIM, device=device)
done = torch.zeros(ROWS, dtype=torch.long, device=device)
outputs = [[] for _ in range(ROWS)]
log_probs = []


def step():
    global codes, state
    logits, state = model(codes, state)
    chosen = torch.multinomial(logits.detach().softmax(-1).flatten(0, 1), 1, generator=rng).view(ROWS, BOOKS)
    log_probs.append(logits.log_softmax(-1).gather(2, chosen.unsqueeze(2)).sum())
    was_done = done.clone()
    done.copy_(torch.maximum(done, (chosen[:, 0] == 0).long()))
    was_done_host = was_done.cpu().tolist()
    codes_host = chosen.cpu().tolist()
    done_host = done.cpu().tolist()
    for row in range(ROWS):
        if not was_done_host[row]:
            outputs[row].append(codes_host[row])
        if done_host[row]:
            outputs[row] = []
    codes = chosen
    if len(log_probs) == HORIZON:
        optimizer.zero_grad()
        (-torch.stack(log_probs).mean()).backward()
        optimizer.step()
        log_probs.clear()
        state = state.detach()
        done.zero_()
