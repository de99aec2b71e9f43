"""
EIT-P, as its owner wrote it: a small GPT whose hidden states are held near those of a slow copy of itself; a hyper-network
decides, from how far apart they were, how much that counts.

It needed more memory than the machine had, and took the machine down with it. Each fault is numbered where it stands;
README.md says what each one costs, ../repaired/trainer.py is the same training in a sixth of the memory.

$ python trainer.py                                                       # trains for a while
$ audit run trainer:step --steps 50                                       # tells what is wrong
$ audit run trainer:step --device rehearse --memory-limit 24MiB           # runs out of memory, and says who held it
"""

import copy
import gc

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_

# -----------------------------------------------------------------------------
# model
vocab_size = 64
block_size = 64
n_layer, n_head, n_embd = 3, 4, 64
# training
batch_size = 16         # Fault 1: all at once. The activations of every layer and every sequence lie in memory together.
learning_rate = 1e-3
grad_clip = 0.5
slowness = 0.99         # of the slow copy
n_steps = 1000
seed = 1337
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# -----------------------------------------------------------------------------

torch.manual_seed(seed)
torch.set_num_threads(1)    # the tensors are small
following = torch.randint(vocab_size, (vocab_size, 4), device=device)   # what may follow a token: the language to learn


def get_batch(n):
    """Sequences of the language, and what comes next at each place."""
    choices = torch.randint(4, (n, block_size + 1), device=device)
    tokens = [torch.randint(vocab_size, (n,), device=device)]
    for place in range(block_size):
        tokens.append(following[tokens[-1], choices[:, place]])
    whole = torch.stack(tokens, dim=1)
    return whole[:, :-1], whole[:, 1:]


class Block(nn.Module):

    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        n, length, _ = x.shape
        q, k, v = (part.view(n, length, n_head, -1).transpose(1, 2) for part in self.qkv(self.ln_1(x)).chunk(3, dim=2))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(seen.transpose(1, 2).reshape(n, length, n_embd))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, n_embd)
        self.places = nn.Embedding(block_size, n_embd)
        self.blocks = nn.ModuleList(Block() for _ in range(n_layer))
        self.norm = nn.LayerNorm(n_embd)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, x):
        hidden = self.tokens(x) + self.places.weight
        for block in self.blocks:
            hidden = block(hidden)
        hidden = self.norm(hidden)
        return self.head(hidden), hidden


model = GPT().to(device)
slow = copy.deepcopy(model).eval()
hyper = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
parameters = [*model.parameters(), *hyper.parameters()]
optimizer = torch.optim.AdamW(parameters, lr=learning_rate)
apart = torch.zeros(1, device=device)       # how far the two were in the last step
trained = 0


@torch.no_grad()
def follow():
    """The slow copy goes a little of the way."""
    torch._foreach_lerp_(list(slow.parameters()), list(model.parameters()), 1 - slowness)


def losses(x, y):
    logits, hidden = model(x)
    # Fault 2: eval() does not turn autograd off. The copy saves as much for a backward that never comes.
    wanted = slow(x)[1].detach()
    distance = F.mse_loss(hidden, wanted)
    weight = hyper(apart)
    language = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    return language + (torch.exp(-weight) * distance + weight).sum(), distance.detach()


def step():
    """One update."""
    global trained
    x, y = get_batch(batch_size)
    optimizer.zero_grad()
    loss, distance = losses(x, y)
    loss.backward()
    clip_grad_norm_(parameters, grad_clip)
    optimizer.step()
    follow()
    apart.copy_(distance)
    trained += 1

    # Fault 3: against the memory that ran out, on every step. It frees what the next step asks for again.
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
    # Fault 4: the only watch on it all is a number that the host waits for, on every step.
    print(f"step {trained}  loss {loss.item():.3f}")


if __name__ == "__main__":
    for _ in range(n_steps):
        step()
