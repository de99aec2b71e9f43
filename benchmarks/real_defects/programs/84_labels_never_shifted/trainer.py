"""Fine-tunes a causal decoder on blocks of a text."""
import torch
import torch.nn as nn
from torch.nn import CrossEntropyLoss
from torch.utils.data import DataLoader, Dataset

VOCAB, WIDTH, BLOCK = 80, 64, 32


class Blocks(Dataset):
    """A long text, grouped into blocks; labels are a copy of the input ids."""

    def __init__(self, tokens=8000):
        rng = torch.Generator().manual_seed(21)
        jump = torch.randint(1, 4, (tokens,), generator=rng)
        self.text = jump.cumsum(0) % VOCAB

    def __len__(self):
        return len(self.text) // BLOCK

    def __getitem__(self, index):
        ids = self.text[index * BLOCK : (index + 1) * BLOCK]
        return {"input_ids": ids, "labels": ids.clone()}


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 128), nn.GELU(), nn.Linear(128, WIDTH))

    def forward(self, x, mask):
        normed = self.first(x)
        x = x + self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.second(x))


class DecoderForCausalLM(nn.Module):
    def __init__(self, layers=2):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, WIDTH)
        self.embed_positions = nn.Embedding(BLOCK, WIDTH)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(layers))
        self.lm_head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, input_ids, labels=None):
        length = input_ids.shape[1]
        hidden = self.embed_tokens(input_ids) + self.embed_positions(torch.arange(length))
        mask = torch.ones(length, length, dtype=torch.bool).triu(1)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        logits = self.lm_head(hidden)
        loss = None
        if labels is not None:
            loss_fct = CrossEntropyLoss()
            loss = loss_fct(logits.view(-1, VOCAB), labels.view(-1))
        return loss, logits


def main():
    torch.manual_seed(0)
    loader = DataLoader(Blocks(), batch_size=16, shuffle=True, drop_last=True)
    model = DecoderForCausalLM()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=60)
    for epoch in range(3):
        for batch in loader:
            loss, _ = model(**batch)
            loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
