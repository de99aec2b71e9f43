"""
A character-level GPT, small enough for a laptop, in the manner of nanoGPT: one file, plain loop.
Nothing is wrong with it, and an audit must say so.

$ python trainer.py                            # trains for a while
$ audit run trainer:train_step --steps 50      # has nothing to say
"""

import math
import time

import torch
import torch.nn as nn
from torch.nn import functional as F

# -----------------------------------------------------------------------------
# I/O
eval_interval = 250
eval_iters = 10
log_interval = 50
# data
batch_size = 8
block_size = 64
# model
n_layer = 2
n_head = 4
n_embd = 64
dropout = 0.0
# adamw optimizer
learning_rate = 1e-3
max_iters = 1000
weight_decay = 1e-1
beta1, beta2 = 0.9, 0.99
grad_clip = 1.0
# learning rate decay
warmup_iters = 20
lr_decay_iters = max_iters
min_lr = 1e-4
# system
seed = 1337
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# -----------------------------------------------------------------------------

torch.manual_seed(seed)

# The text: a little grammar, so that there is something to learn and nothing to download.
subjects = ["the king", "a sailor", "my brother", "the old fox", "every child", "one quiet owl"]
verbs = ["sees", "follows", "forgets", "remembers", "paints", "cannot find"]
objects = ["the sea", "a lantern", "his shadow", "the long road", "some bread", "the winter"]
pick = torch.Generator().manual_seed(seed)


def sentence():
    s, v, o = torch.randint(6, (3,), generator=pick).tolist()
    return f"{subjects[s]} {verbs[v]} {objects[o]}.\n"


text = "".join(sentence() for _ in range(8000))
chars = sorted(set(text))
vocab_size = len(chars)
stoi = {ch: i for i, ch in enumerate(chars)}
tokens = torch.tensor([stoi[ch] for ch in text])
n_train = int(0.9 * len(tokens))
splits = {"train": tokens[:n_train], "val": tokens[n_train:]}


def get_batch(split):
    data = splits[split]
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in ix])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in ix])
    if device.type == "cuda":
        # pinned, so that the copy does not hold up the host
        return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)
    return x, y


# -----------------------------------------------------------------------------
# the model


class CausalSelfAttention(nn.Module):

    def __init__(self):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)    # key, query, value for all heads at once
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, n_head, C // n_head).transpose(1, 2) for part in self.c_attn(x).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout if self.training else 0.0, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):

    def __init__(self):
        super().__init__()
        self.ln_1 = nn.LayerNorm(n_embd)
        self.attn = CausalSelfAttention()
        self.ln_2 = nn.LayerNorm(n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.h = nn.ModuleList([Block() for _ in range(n_layer)])
        self.ln_f = nn.LayerNorm(n_embd)
        self.lm_head = nn.Linear(n_embd, vocab_size, bias=False)
        self.apply(self.init_weights)
        self.wte.weight = self.lm_head.weight           # tied

    @staticmethod
    def init_weights(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, idx, targets):
        pos = torch.arange(idx.shape[1], device=idx.device)
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))


model = GPT().to(device)

# weights of matrices decay, biases and layernorms do not
decay = [p for p in model.parameters() if p.dim() >= 2]
no_decay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}],
    lr=learning_rate, betas=(beta1, beta2), fused=device.type == "cuda",
)


@torch.no_grad()
def estimate_loss():
    """Mean loss on either split; one read for each, after all of its batches."""
    model.eval()
    out = {}
    for split in splits:
        losses = torch.stack([model(*get_batch(split)) for _ in range(eval_iters)])
        out[split] = losses.mean().item()
    model.train()
    return out


def get_lr(it):
    """Cosine with warmup."""
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    if it > lr_decay_iters:
        return min_lr
    progress = (it - warmup_iters) / (lr_decay_iters - warmup_iters)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * progress)) * (learning_rate - min_lr)


# -----------------------------------------------------------------------------
# training

iter_num = 0
X, Y = get_batch("train")       # the very first batch
t0 = time.time()


def train_step():
    """One update of the weights."""
    global iter_num, X, Y, t0

    for group in optimizer.param_groups:
        group["lr"] = get_lr(iter_num)

    if iter_num % eval_interval == 0:
        losses = estimate_loss()
        print(f"step {iter_num}: train loss {losses['train']:.4f}, val loss {losses['val']:.4f}")

    loss = model(X, Y)
    X, Y = get_batch("train")   # the next batch is on its way while the device is busy with this one
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

    iter_num += 1
    if iter_num % log_interval == 0:
        # a sync point, and rare
        lossf = loss.item()
        t1 = time.time()
        print(f"iter {iter_num}: loss {lossf:.4f}, {(t1 - t0) / log_interval * 1000:.2f} ms an iteration")
        t0 = t1


step = train_step               # `trainer:step` is the same target

if __name__ == "__main__":
    while iter_num < max_iters:
        train_step()
