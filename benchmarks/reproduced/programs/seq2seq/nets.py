import torch
import torch.nn as nn


class Encoder(nn.Module):
    def __init__(self, vocab, d):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.rnn = nn.GRU(d, d, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * d, d)

    def forward(self, src):
        out, h = self.rnn(self.emb(src))
        return self.bridge(out), torch.tanh(self.bridge(torch.cat([h[0], h[1]], -1)))


class Decoder(nn.Module):
    def __init__(self, vocab, d, drop=0.1):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.cell = nn.GRUCell(2 * d, d)
        self.score = nn.Linear(d, d, bias=False)
        self.drop = nn.Dropout(drop)
        self.out = nn.Linear(2 * d, vocab)

    def forward(self, tok, h, mem):
        att = torch.softmax((mem @ self.score(h).unsqueeze(-1)).squeeze(-1), -1)
        ctx = (att.unsqueeze(1) @ mem).squeeze(1)
        h = self.cell(torch.cat([self.drop(self.emb(tok)), ctx], -1), h)
        return self.out(torch.cat([h, ctx], -1)), h


class Seq2Seq(nn.Module):
    def __init__(self, vocab, d, bos, sampler):
        super().__init__()
        self.enc, self.dec = Encoder(vocab, d), Decoder(vocab, d)
        self.bos, self.sampler = bos, sampler

    def forward(self, src, tgt):
        mem, h = self.enc(src)
        tok = torch.full((src.size(0),), self.bos, dtype=torch.long)
        logits = []
        for t in range(tgt.size(1)):
            o, h = self.dec(tok, h, mem)
            logits.append(o)
            gold = self.training and self.sampler.use_gold()
            tok = tgt[:, t] if gold else o.argmax(-1)
        return torch.stack(logits, 1)
