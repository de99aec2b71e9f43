"""Feature distillation: a narrow student imitates a wide teacher."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CLASSES, BATCH, TEMPERATURE = 10, 16, 4.0


def net(width):
    return nn.ModuleList([
        nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.BatchNorm2d(width), nn.ReLU()),
        nn.Sequential(nn.Conv2d(width, 2 * width, 3, 2, 1), nn.BatchNorm2d(2 * width), nn.ReLU()),
        nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2 * width, CLASSES)),
    ])


def run(stages, images):
    feature = stages[1](stages[0](images))
    return feature, stages[2](feature)


teacher = net(32).to(device)  # batch norm of the teacher stays in training mode, as in the paper
student = net(8).to(device)
connector = nn.Sequential(nn.Conv2d(16, 64, 1, bias=False), nn.BatchNorm2d(64)).to(device)
optimizer = torch.optim.SGD([*student.parameters(), *connector.parameters()], lr=0.05, momentum=0.9, nesterov=True)
rng = torch.Generator(device=device).manual_seed(16)
margin = torch.full((1, 64, 1, 1), -0.5, device=device)
total = torch.zeros((), device=device)
count = 0


def step():
    global count
    images = torch.randn(BATCH, 3, 32, 32, device=device, generator=rng)
    labels = torch.randint(0, CLASSES, (BATCH,), device=device, generator=rng)
    with torch.no_grad():
        t_feature, t_logits = run(teacher, images)
    s_feature, s_logits = run(student, images)
    wanted = torch.maximum(t_feature.detach(), margin)
    distance = F.mse_loss(connector(s_feature), wanted)
    soft = F.kl_div(F.log_softmax(s_logits / TEMPERATURE, 1), F.softmax(t_logits.detach() / TEMPERATURE, 1),
                    reduction="batchmean") * TEMPERATURE ** 2
    loss = F.cross_entropy(s_logits, labels) + distance + 0.5 * soft
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total.add_(loss.detach())
    count += 1
    if count % 50 == 0:
        print(f"{count} {total.item() / 50:.3f}")
        total.zero_()
