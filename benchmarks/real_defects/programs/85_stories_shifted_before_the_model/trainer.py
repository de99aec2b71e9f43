"""Story endings: a language-model loss beside the choice between two endings."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(14)
random.seed(14)
START, DELIMITER, CLASSIFY, VOCAB, WIDTH, LENGTH, BATCH = 0, 1, 2, 90, 64, 28, 16


def sentence(topic, count):
    word, words = topic, []
    for _ in range(count):
        word = 10 + (word * 7 + random.choice((1, 1, 1, 4))) % (VOCAB - 10)
        words.append(word)
    return words


def load_rocstories(count):
    stories = []
    for _ in range(count):
        topic = random.randrange(10, VOCAB)
        story = sentence(topic, random.randint(10, 16))
        right, wrong = sentence(story[-1], 6), [random.randrange(10, VOCAB) for _ in range(6)]
        label = random.randrange(2)
        endings = (wrong, right) if label else (right, wrong)
        stories.append((story, endings, label))
    return stories


def pre_process(stories):
    """Ids, labels of the language model (-1: none) and the place of the classifier's token."""
    rows, mc_token_ids, mc_labels = [], [], []
    for story, endings, label in stories:
        for ending in endings:
            ids = [START, *story, DELIMITER, *ending, CLASSIFY]
            rows.append(ids)
            mc_token_ids.append(len(ids) - 1)
        mc_labels.append(label)
    input_ids = torch.zeros(len(rows), LENGTH, dtype=torch.long)
    lm_labels = torch.full((len(rows), LENGTH), -1)
    for i, ids in enumerate(rows):
        input_ids[i, : len(ids)] = torch.tensor(ids)
        lm_labels[i, : len(ids) - 1] = torch.tensor(ids[1:])
    shape = (len(stories), 2)
    return (
        input_ids.view(*shape, LENGTH),
        torch.tensor(mc_token_ids).view(shape),
        lm_labels.view(*shape, LENGTH),
        torch.tensor(mc_labels),
    )


class DoubleHeadsModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.body = nn.GRU(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.choice = nn.Linear(WIDTH, 1)

    def forward(self, input_ids, mc_token_ids, lm_labels, mc_labels):
        batch, choices, length = input_ids.shape
        hidden, _ = self.body(self.tokens(input_ids.view(-1, length)))
        lm_logits = hidden @ self.tokens.weight.T
        shift_logits = lm_logits[:, :-1].contiguous()
        shift_labels = lm_labels.view(-1, length)[:, 1:].contiguous()
        lm_loss = F.cross_entropy(shift_logits.view(-1, VOCAB), shift_labels.view(-1), ignore_index=-1)
        picked = hidden[torch.arange(len(hidden)), mc_token_ids.view(-1)]
        mc_loss = F.cross_entropy(self.choice(picked).view(batch, choices), mc_labels)
        return lm_loss, mc_loss


data = pre_process(load_rocstories(400))
model = DoubleHeadsModel()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


def step():
    chosen = torch.randperm(len(data[0]))[:BATCH]
    lm_loss, mc_loss = model(*(tensor[chosen] for tensor in data))
    loss = 0.9 * lm_loss + mc_loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
