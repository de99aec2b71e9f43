"""GFlowNet-like training on short trajectories with moving averages of the losses."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

DIM, ACTIONS, HORIZON, BATCH, ALPHA = 8, 5, 6, 32, 0.1

policy = nn.Sequential(nn.Linear(DIM, 64), nn.LeakyReLU(), nn.Linear(64, 64), nn.LeakyReLU(), nn.Linear(64, ACTIONS + 1)).to(device)
log_z = nn.Parameter(torch.zeros((), device=device))
optimizer = torch.optim.Adam([{"params": policy.parameters(), "lr": 1e-3}, {"params": [log_z], "lr": 1e-2}])
rng = torch.Generator(device=device).manual_seed(4)
moves = torch.randn(ACTIONS, DIM, device=device, generator=rng) * 0.5

loss_term_ema = None
loss_flow_ema = None
iteration = 0


def log_reward(state):
    return -state.pow(2).sum(dim=1).clamp(max=20.0)


def rollout():
    state = torch.randn(BATCH, DIM, device=device, generator=rng)
    log_pf = torch.zeros(BATCH, device=device)
    flows = []
    for _ in range(HORIZON):
        out = policy(state)
        log_p = F.log_softmax(out[:, :ACTIONS], dim=1)
        flows.append(out[:, ACTIONS])
        gumbel = -torch.empty_like(log_p).exponential_(generator=rng).log()
        action = (log_p.detach() + gumbel).argmax(dim=1, keepdim=True)
        log_pf = log_pf + log_p.gather(1, action).squeeze(1)
        state = state + moves[action.squeeze(1)]
    return state, log_pf, torch.stack(flows, dim=1)


def moving(previous, value):
    return value if previous is None else ALPHA * value + (1 - ALPHA) * previous


def step():
    global loss_term_ema, loss_flow_ema, iteration
    state, log_pf, flows = rollout()
    loss_term = (log_z + log_pf - log_reward(state)).pow(2).mean()
    loss_flow = (flows[:, 1:] - flows[:, :-1]).pow(2).mean()
    loss = loss_term + 0.1 * loss_flow
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss_term_ema = moving(loss_term_ema, loss_term)
    loss_flow_ema = moving(loss_flow_ema, loss_flow)
    iteration += 1
    if iteration % 50 == 0:
        print(f"{iteration}: term {loss_term_ema.item():.3f} flow {loss_flow_ema.item():.3f}")
