"""Language-model pre-training with frequent checkpoints."""
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
VOCAB, DIM, BATCH, LENGTH, SAVE_EVERY = 4000, 96, 4, 16, 10
FOLDER = tempfile.mkdtemp(prefix="pretrain_")


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.rnn = nn.LSTM(DIM, DIM, batch_first=True)
        self.norm = nn.LayerNorm(DIM)

    def forward(self, tokens):
        return F.linear(self.norm(self.rnn(self.embed(tokens))[0]), self.embed.weight)


model = LM().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(42)
done = 0


def write(state, path):
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def save_checkpoint():
    state = {"step": done, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    write(state, os.path.join(FOLDER, "last.pt"))


def step():
    global done
    tokens = torch.randint(0, VOCAB, (BATCH, LENGTH + 1), device=device, generator=rng)
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    done += 1
    if done % SAVE_EVERY == 0:
        save_checkpoint()
    if done % 50 == 0:
        print(done, loss.item())
