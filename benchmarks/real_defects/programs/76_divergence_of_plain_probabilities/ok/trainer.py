"""Distils a cross-encoder's scores of passage lists into a two-tower ranker."""
import torch
import torch.nn as nn

torch.manual_seed(2)
VOCAB, WIDTH, LIST, BATCH, QUERY_LENGTH, PASSAGE_LENGTH = 400, 64, 8, 16, 6, 24


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(VOCAB, WIDTH, mode="mean")
        self.layers = nn.Sequential(nn.Linear(WIDTH, 128), nn.GELU(), nn.Linear(128, WIDTH))

    def forward(self, ids):
        return self.layers(self.words(ids))


class DotRanker(nn.Module):
    def __init__(self):
        super().__init__()
        self.query_tower = Tower()
        self.passage_tower = Tower()

    def forward(self, query, passages):
        lists, items, length = passages.shape
        q = self.query_tower(query)
        d = self.passage_tower(passages.view(lists * items, length)).view(lists, items, -1)
        return torch.einsum("bw,bnw->bn", q, d)


class KLDivTeacherList(nn.Module):
    def __init__(self):
        super().__init__()
        self.kl = nn.KLDivLoss(reduction="batchmean")

    def forward(self, scores, labels):
        return self.kl(scores.log_softmax(-1), labels.softmax(-1))


class Trainer:
    def __init__(self):
        self.model = DotRanker()
        self.loss = KLDivTeacherList()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.topics = torch.randn(VOCAB, 16)

    def batch(self):
        query = torch.randint(0, VOCAB, (BATCH, QUERY_LENGTH))
        passages = torch.randint(0, VOCAB, (BATCH, LIST, PASSAGE_LENGTH))
        copied = torch.rand(BATCH, LIST, QUERY_LENGTH) < torch.rand(BATCH, LIST, 1)
        passages[:, :, :QUERY_LENGTH] = torch.where(copied, query[:, None], passages[:, :, :QUERY_LENGTH])
        q = self.topics[query].mean(1)
        d = self.topics[passages].mean(2)
        teacher_scores = 8 * torch.cosine_similarity(q[:, None], d, dim=-1)
        return query, passages, teacher_scores

    def train_batch(self):
        query, passages, teacher_scores = self.batch()
        scores = self.model(query, passages)
        loss = self.loss(scores, teacher_scores)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


trainer = Trainer()


def step():
    trainer.train_batch()
