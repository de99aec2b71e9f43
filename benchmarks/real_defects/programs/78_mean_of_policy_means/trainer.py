"""PPO on sampled responses; the rollouts are trained in micro-batches."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(9)
VOCAB, WIDTH, PROMPT, LONGEST, RESPONSES, ACCUMULATION = 48, 48, 6, 40, 16, 4
CLIP_LOW, CLIP_HIGH = 0.2, 0.28


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.body = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        return self.head(self.body(self.embed(ids))[0])

    def logprobs(self, ids):
        """Of each response token, given what stands before it."""
        logits = self(ids[:, :-1])[:, PROMPT - 1 :]
        return -F.cross_entropy(logits.transpose(1, 2), ids[:, PROMPT:], reduction="none")


def masked_mean(values, mask):
    return (values * mask).sum() / mask.sum().clamp(min=1)


def ppo_policy_loss(policy, batch):
    ratio = (policy.logprobs(batch["ids"]) - batch["old_logprobs"]).exp()
    unclipped = ratio * batch["advantages"]
    clipped = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH) * batch["advantages"]
    loss = -torch.min(unclipped, clipped)
    return masked_mean(loss, batch["mask"])


@torch.no_grad()
def batch_of_responses():
    """Prompts with sampled continuations of very different lengths, rewarded for even tokens."""
    ids = torch.randint(0, VOCAB, (RESPONSES, PROMPT + LONGEST))
    lengths = torch.randint(2, LONGEST + 1, (RESPONSES,)).sort().values
    mask = (torch.arange(LONGEST) < lengths[:, None]).float()
    rewards = ((ids[:, PROMPT:] % 2 == 0).float() * mask).sum(1) / lengths
    advantages = ((rewards - rewards.mean()) / (rewards.std() + 1e-6))[:, None].expand_as(mask)
    return {"ids": ids, "mask": mask, "advantages": advantages, "old_logprobs": policy.logprobs(ids)}


def micro_batches(batch):
    size = RESPONSES // ACCUMULATION
    for start in range(0, RESPONSES, size):
        yield {key: value[start : start + size] for key, value in batch.items()}


policy = Policy()
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)


def step():
    optimizer.zero_grad()
    for batch in micro_batches(batch_of_responses()):
        loss = ppo_policy_loss(policy, batch) / ACCUMULATION
        loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    optimizer.step()
