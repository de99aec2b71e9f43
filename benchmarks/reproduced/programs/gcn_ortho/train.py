import torch
import torch.nn.functional as F

from graphdata import normalise, stochastic_block_graph
from model import GCN

torch.set_num_threads(1)

CFG = dict(seed=7, nodes=300, classes=5, feat=24, hidden=32, depth=3, epochs=40, lr=1e-2, wd=5e-4)


class Experiment:
    def __init__(self, cfg):
        self.cfg = cfg
        self.build()
        self.load()

    def build(self):
        c = self.cfg
        self.model = GCN(c["feat"], c["hidden"], c["classes"], c["depth"])
        self.opt = torch.optim.Adam(self.model.parameters(), lr=c["lr"], weight_decay=c["wd"])

    def load(self):
        c = self.cfg
        self.x, a, self.y, self.split = stochastic_block_graph(c["nodes"], c["classes"], c["feat"], seed=c["seed"])
        self.adj = normalise(a)

    def train_epoch(self):
        self.model.train()
        self.opt.zero_grad()
        out = self.model(self.x, self.adj)
        loss = F.cross_entropy(out[self.split["train"]], self.y[self.split["train"]])
        loss.backward()
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def accuracy(self, part):
        self.model.eval()
        idx = self.split[part]
        pred = self.model(self.x, self.adj)[idx].argmax(1)
        return (pred == self.y[idx]).float().mean().item()

    def run(self):
        best = 0.0
        for ep in range(self.cfg["epochs"]):
            loss = self.train_epoch()
            val = self.accuracy("val")
            best = max(best, val)
            print("Epoch: {:03d} loss: {:.7f} val: {:.4f}".format(ep + 1, loss, val))
        print("best val {:.4f}, test {:.4f}".format(best, self.accuracy("test")))


torch.manual_seed(CFG["seed"])
Experiment(CFG).run()
