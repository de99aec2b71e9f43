"""LoRA-style fine-tuning of a small causal language model."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

VOCAB, DIM, SEQ, BATCH, LOG_EVERY = 512, 64, 32, 8, 20


class LoRALinear(nn.Module):
    def __init__(self, dim_in, dim_out, rank=4):
        super().__init__()
        self.base = nn.Linear(dim_in, dim_out).requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, dim_in) * 0.02)
        self.b = nn.Parameter(torch.zeros(dim_out, rank))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a), self.b)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = LoRALinear(DIM, 3 * DIM), LoRALinear(DIM, DIM)
        self.up, self.down = LoRALinear(DIM, 4 * DIM), LoRALinear(4 * DIM, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 4, DIM // 4).permute(2, 0, 3, 1, 4)
        att = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(att.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM).requires_grad_(False)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = LoRALinear(DIM, VOCAB)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


model = TinyLM().to(device)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
generator = torch.Generator(device=device).manual_seed(1)
step_no = 0
last_loss = 0.0


def step():
    global step_no, last_loss
    tokens = torch.randint(0, VOCAB, (BATCH, SEQ + 1), device=device, generator=generator)
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    last_loss = loss.item()
    step_no += 1
    if step_no % LOG_EVERY == 0:
        print(f"step {step_no} loss {last_loss:.4f}")
